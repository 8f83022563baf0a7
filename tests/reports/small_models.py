"""DiffSynth-Studio's own models at reduced width, and checkpoints of them with the true tensor names.

The classes are those of the package; where a width is a literal in the class, a subclass makes the same
submodules narrower. ``make`` writes checkpoints, tokenizers and one row per model for DiffSynth's table of
known models; ``register`` adds the rows to that table in a process, so that models are recognised by the
hash of names and shapes as the published ones are.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from diffsynth.core.vram.initialization import skip_model_initialization
from diffsynth.models import qwen_image_dit, wan_video_vae
from diffsynth.models.qwen_image_dit import QwenImageDiT
from diffsynth.models.qwen_image_text_encoder import QwenImageTextEncoder
from diffsynth.models.qwen_image_vae import QwenImageVAE
from diffsynth.models.wan_video_dit import WanModel
from diffsynth.models.wan_video_text_encoder import WanTextEncoder
from diffsynth.models.wan_video_vae import WanVideoVAE
from safetensors.torch import save_file
from torch import nn

VOCABULARY = 512
"""Tokens of both tokenizers, rounded up."""


class SmallWanVAE(WanVideoVAE):
    """Wan's VAE, its inner model narrower."""

    def __init__(self, dim: int) -> None:
        with mock.patch.object(wan_video_vae, "VideoVAE_", functools.partial(wan_video_vae.VideoVAE_, dim=dim)):
            super().__init__()


class SmallQwenImageDiT(QwenImageDiT):
    """Qwen-Image's DiT, narrower; its forward is the package's."""

    def __init__(self, dim: int, text_dim: int, num_layers: int) -> None:
        nn.Module.__init__(self)
        m = qwen_image_dit
        self.pos_embed = m.QwenEmbedRope(theta=10000, axes_dim=[16, 56, 56], scale_rope=True)
        self.time_text_embed = m.TimestepEmbeddings(
            256, dim, diffusers_compatible_format=True, scale=1000, align_dtype_to_timestep=False
        )
        # A field of later versions, which their pipeline reads.
        if not hasattr(self.time_text_embed, "use_additional_t_cond"):
            self.time_text_embed.use_additional_t_cond = False
        self.txt_norm = m.RMSNorm(text_dim, eps=1e-6)
        self.img_in = nn.Linear(64, dim)
        self.txt_in = nn.Linear(text_dim, dim)
        self.transformer_blocks = nn.ModuleList(
            m.QwenImageTransformerBlock(dim=dim, num_attention_heads=dim // 128, attention_head_dim=128)
            for _ in range(num_layers)
        )
        self.norm_out = m.AdaLayerNorm(dim, single=True)
        self.proj_out = nn.Linear(dim, 64)


class SmallQwenImageTextEncoder(QwenImageTextEncoder):
    """Qwen-Image's text encoder, its configuration narrower."""

    def __init__(self, hidden: int, layers: int) -> None:
        import transformers

        original = transformers.Qwen2_5_VLConfig

        def narrower(**values: Any) -> Any:
            text = {
                "hidden_size": hidden,
                "intermediate_size": 3 * hidden,
                "num_attention_heads": hidden // 128,
                "num_key_value_heads": 1,
                "num_hidden_layers": layers,
                "max_window_layers": layers,
                "layer_types": ["full_attention"] * layers,
                "vocab_size": VOCABULARY,
            }
            vision = {"depth": 2, "fullatt_block_indexes": [1], "hidden_size": 64, "intermediate_size": 128}
            vision |= {"num_heads": 2, "out_hidden_size": hidden}
            values["text_config"] |= text
            values["vision_config"] |= vision
            tokens = {"bos_token_id": 1, "eos_token_id": 2, "image_token_id": 3, "video_token_id": 4}
            tokens |= {"vision_start_token_id": 5, "vision_end_token_id": 6, "vision_token_id": 7}
            values["text_config"] |= {key: value for key, value in tokens.items() if key in values["text_config"]}
            return original(**(values | text | tokens))

        with mock.patch.object(transformers, "Qwen2_5_VLConfig", narrower):
            super().__init__()


_CONVERTERS = "diffsynth.utils.state_dict_converters"
_WAN_VAE = f"{_CONVERTERS}.wan_video_vae.WanVideoVAEStateDictConverter"
_QWEN_TEXT = f"{_CONVERTERS}.qwen_image_text_encoder.QwenImageTextEncoderStateDictConverter"


def _wan_dit(dim: int, text_dim: int, layers: int) -> dict[str, Any]:
    return {
        "has_image_input": False,
        "patch_size": [1, 2, 2],
        "in_dim": 16,
        "dim": dim,
        "ffn_dim": 4 * dim,
        "freq_dim": 256,
        "text_dim": text_dim,
        "out_dim": 16,
        "num_heads": dim // 128,
        "num_layers": layers,
        "eps": 1e-6,
    }


def _t5(dim: int, layers: int) -> dict[str, Any]:
    size = {"dim": dim, "dim_attn": dim, "dim_ffn": 3 * dim, "num_heads": dim // 32, "num_layers": layers}
    return {"vocab": VOCABULARY, **size}


#: Widths by name: ``tiny`` for tests of behaviour, ``small`` for measurements.
SCALES: dict[str, dict[str, Any]] = {
    "tiny": {"wan": (128, 64, 2), "t5": (64, 2), "vae": 8, "qwen": (128, 128, 2), "text": (128, 2)},
    "small": {"wan": (768, 512, 8), "t5": (512, 8), "vae": 32, "qwen": (512, 512, 8), "text": (512, 6)},
}


def _models(scale: str) -> dict[str, tuple[str, Any, dict[str, Any], str | None]]:
    """Class and arguments of each model: name in DiffSynth's table, class, arguments, converter."""
    s = SCALES[scale]
    return {
        "wan_dit": ("wan_video_dit", WanModel, _wan_dit(*s["wan"]), None),
        "wan_text": ("wan_video_text_encoder", WanTextEncoder, _t5(*s["t5"]), None),
        "wan_vae": ("wan_video_vae", SmallWanVAE, {"dim": s["vae"]}, _WAN_VAE),
        "qwen_dit": (
            "qwen_image_dit",
            SmallQwenImageDiT,
            dict(zip(("dim", "text_dim", "num_layers"), s["qwen"], strict=True)),
            None,
        ),
        "qwen_text": (
            "qwen_image_text_encoder",
            SmallQwenImageTextEncoder,
            dict(zip(("hidden", "layers"), s["text"], strict=True)),
            _QWEN_TEXT,
        ),
        "qwen_vae": ("qwen_image_vae", QwenImageVAE, {"base_dim": s["vae"]}, None),
    }


def file_name(model: str, name: str) -> str:
    """The name in a checkpoint file of a name in the module: what the package's converters undo."""
    if model == "wan_vae":
        return name.removeprefix("model.")
    if model == "qwen_text":
        return name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")
    return name


def shapes(scale: str, model: str) -> dict[str, list[int]]:
    """Names, as in a checkpoint file, and shapes; nothing is allocated."""
    _, cls, arguments, _ = _models(scale)[model]
    with skip_model_initialization():
        state = cls(**arguments).state_dict()
    return {file_name(model, name): list(tensor.shape) for name, tensor in state.items()}


def random_state(shapes: dict[str, list[int]], seed: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Values that a forward pass stays finite with: norms about one, the rest small."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in shapes.items():
        leaf = name.rpartition(".")[2]
        norm = leaf == "gamma" or (leaf == "weight" and len(shape) == 1)
        state[name] = (torch.randn(shape, generator=generator) * 0.02 + float(norm)).to(dtype)
    return state


def model_hash(shapes: dict[str, list[int]]) -> str:
    """As ``hash_model_file`` computes it."""
    from diffsynth.core.loader.file import convert_keys_dict_to_single_str

    return hashlib.md5(convert_keys_dict_to_single_str(shapes).encode()).hexdigest()


#: Where each model's files lie under the folder of checkpoints, as published: model id, files, shards.
PUBLISHED = {
    "wan_dit": ("Wan-AI/Wan2.2-TI2V-5B", "diffusion_pytorch_model{}.safetensors", 3),
    "wan_text": ("Wan-AI/Wan2.2-TI2V-5B", "models_t5_umt5-xxl-enc-bf16.pth", 1),
    "wan_vae": ("Wan-AI/Wan2.2-TI2V-5B", "Wan2.1_VAE.pth", 1),
    "qwen_dit": ("Qwen/Qwen-Image", "transformer/diffusion_pytorch_model{}.safetensors", 5),
    "qwen_text": ("Qwen/Qwen-Image", "text_encoder/model{}.safetensors", 2),
    "qwen_vae": ("Qwen/Qwen-Image", "vae/diffusion_pytorch_model.safetensors", 1),
}

#: Types as published: Wan's DiT and VAE are stored wider than they are used.
STORED = {"wan_dit": torch.float32, "wan_vae": torch.float32}


def make(folder: Path, scale: str, models: list[str], published_types: bool = True) -> dict[str, list[Path]]:
    """Writes the checkpoints of some models as published, and ``models.json``; the files of each model."""
    files: dict[str, list[Path]] = {}
    rows = []
    for seed, model in enumerate(models):
        name, cls, arguments, converter = _models(scale)[model]
        names = shapes(scale, model)
        stored = STORED.get(model, torch.bfloat16) if published_types else torch.bfloat16
        files[model] = _write(folder, model, random_state(names, seed, stored))
        row = {"model_hash": model_hash(names), "model_name": name, "extra_kwargs": arguments}
        row["model_class"] = f"{cls.__module__}.{cls.__qualname__}".replace("__main__", "small_models")
        rows.append(row | ({} if converter is None else {"state_dict_converter": converter}))
    if any(model.startswith("wan") for model in models):
        wan_tokenizer(folder / "Wan-AI/Wan2.1-T2V-1.3B/google/umt5-xxl")
    if any(model.startswith("qwen") for model in models):
        _qwen_tokenizer(folder / "Qwen/Qwen-Image/tokenizer")
        _qwen_processor(folder / "Qwen/Qwen-Image-Edit/processor")
    (folder / "models.json").write_text(json.dumps(rows), encoding="utf-8")
    return files


def _write(folder: Path, model: str, state: dict[str, torch.Tensor]) -> list[Path]:
    model_id, file, shards = PUBLISHED[model]
    if file.endswith(".pth"):
        path = folder / model_id / file
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, path)
        return [path]
    names = list(state)
    paths = []
    for number in range(shards):
        label = f"-{number + 1:05d}-of-{shards:05d}" if shards > 1 else ""
        path = folder / model_id / file.format(label)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = names[len(names) * number // shards : len(names) * (number + 1) // shards]
        save_file({name: state[name] for name in part}, path)
        paths.append(path)
    return paths


def register(folder: str | os.PathLike[str]) -> None:
    """Adds the models of a folder to DiffSynth's table, in this process."""
    from diffsynth.configs import MODEL_CONFIGS

    rows = json.loads(Path(folder, "models.json").read_text(encoding="utf-8"))
    MODEL_CONFIGS.extend(row for row in rows if row not in MODEL_CONFIGS)


_PROMPTS = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n picture number<|im_end|>\n"
    "<|im_start|>assistant\n"
)
"""Words that are one token each, as they are in the published tokenizers: what a prompt costs."""


def _vocabulary(special: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Tokens and merges: every byte, and the words of the prompts."""
    from tokenizers import pre_tokenizers
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokens = special + list(bytes_to_unicode().values())
    merges = []
    words = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(_PROMPTS)
    for word in dict.fromkeys(word for word, _ in words if word.strip("\u0120").isalpha()):
        for stop in range(2, len(word) + 1):
            if word[:stop] not in tokens:
                tokens.append(word[:stop])
            if (word[: stop - 1], word[stop - 1]) not in merges:
                merges.append((word[: stop - 1], word[stop - 1]))
    return {token: number for number, token in enumerate(tokens)}, merges


def wan_tokenizer(folder: Path) -> None:
    """A tokenizer in the place of the published one: the words of the prompts, and every byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "</s>", "<unk>"]
    vocabulary, merges = _vocabulary(special)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    fast.save_pretrained(folder)


def _qwen_tokenizer(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|video_pad|>"]
    special += ["<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"]
    vocabulary, merges = _vocabulary(special)
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    config: dict[str, Any] = {"tokenizer_class": "Qwen2Tokenizer", "additional_special_tokens": special[1:]}
    config |= {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def _qwen_processor(folder: Path) -> None:
    """Text and images: a picture becomes patches of 14 by 14, four of them a token."""
    from transformers import Qwen2Tokenizer, Qwen2VLImageProcessor, Qwen2VLProcessor, Qwen2VLVideoProcessor

    _qwen_tokenizer(folder)
    tokenizer = Qwen2Tokenizer.from_pretrained(folder)
    Qwen2VLProcessor(Qwen2VLImageProcessor(), tokenizer, Qwen2VLVideoProcessor()).save_pretrained(folder)
