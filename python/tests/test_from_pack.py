"""transformers, diffusers and accelerate load official classes from a pack as they do from safetensors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import wpack  # noqa: E402
from states import same  # noqa: E402
from wpack.integrations._pages import MappedPacks, unwritten  # noqa: E402


def equal(left: Any, right: Any) -> None:
    """State dicts of the same names, and of the same bits in every tensor; buffers left out of it as well."""
    one, two = left.state_dict(), right.state_dict()
    assert list(one) == list(two)
    for name in one:
        assert same(one[name], two[name]), name
    for (name, mine), (_, theirs) in zip(left.named_buffers(), right.named_buffers()):
        assert not mine.is_meta and same(mine, theirs), name


def mapped(model: Any, digest: str) -> None:
    """Every parameter is the file's own memory, and none of it a private copy."""
    packs = MappedPacks()
    for name, parameter in model.named_parameters():
        origin = packs.origin(parameter)
        assert origin is not None and origin[0] == digest, name
        assert unwritten(parameter), name


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder as transformers saves it, in two shards, embeddings tied; and the pack of it."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("llama")
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=131, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.generation_config.max_new_tokens = 7
    model.save_pretrained(folder / "model", max_shard_size="60KB")
    wpack.convert(folder / "model", folder / "llama.wpack", progress=False)
    return folder / "model", folder / "llama.wpack"


class TestTransformers:
    def test_equals_safetensors(self, llama: tuple[Path, Path]) -> None:
        import transformers
        from wpack.integrations.transformers import from_pack

        folder, pack = llama
        stock = transformers.LlamaForCausalLM.from_pretrained(folder)
        model = from_pack(pack)
        assert type(model) is type(stock) and model.training is stock.training
        equal(model, stock)
        mapped(model, wpack.open(pack).digest)
        assert model.lm_head.weight is model.model.embed_tokens.weight
        assert model.generation_config.max_new_tokens == 7
        x = torch.arange(12).view(1, 12)
        assert torch.equal(model(x).logits, stock(x).logits)

    def test_a_cast_equals_that_of_safetensors(self, llama: tuple[Path, Path]) -> None:
        import transformers
        from wpack.integrations.transformers import from_pack

        folder, pack = llama
        stock = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
        equal(from_pack(pack, dtype=torch.float32), stock)

    def test_another_class_of_the_same_weights(self, llama: tuple[Path, Path]) -> None:
        import transformers
        from wpack.integrations.transformers import from_pack

        folder, pack = llama
        equal(from_pack(pack, model_class=transformers.LlamaModel), transformers.LlamaModel.from_pretrained(folder))

    def test_small_files_come_back(self, llama: tuple[Path, Path], tmp_path: Path) -> None:
        from wpack.integrations.transformers import save_files

        written = save_files(llama[1], tmp_path)
        assert {path.name for path in written} >= {"config.json", "generation_config.json"}
        for path in written:
            assert path.read_bytes() == (llama[0] / path.name).read_bytes()

    def test_what_is_refused(self, llama: tuple[Path, Path], tmp_path: Path) -> None:
        from wpack.integrations._refuse import QuantizedModelError
        from wpack.integrations.transformers import MissingConfigError, from_pack

        with pytest.raises(QuantizedModelError, match="bitsandbytes"):
            from_pack(llama[1], quantization_config={"quant_method": "bitsandbytes"})
        bare = tmp_path / "bare.wpack"
        wpack.convert(sorted(llama[0].glob("*.safetensors")), bare, progress=False)
        with pytest.raises(MissingConfigError, match="hint: convert the model's folder"):
            from_pack(bare)
        with pytest.raises(wpack.errors.UnknownComponentError):
            from_pack(llama[1], component="vae")


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of a whole pipeline: a transformer in bf16, a VAE in fp32, a text encoder, a scheduler."""
    diffusers = pytest.importorskip("diffusers")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("pipeline")
    torch.manual_seed(1)
    transformer = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4,
        text_dim=16, freq_dim=32, ffn_dim=40, num_layers=2, cross_attn_norm=True, rope_max_seq_len=32,
    ).to(torch.bfloat16)  # fmt: skip
    vae = diffusers.AutoencoderKLWan(base_dim=8, z_dim=4, dim_mult=[1, 2], num_res_blocks=1, temperal_downsample=[True])
    text = transformers.UMT5EncoderModel(
        transformers.UMT5Config(vocab_size=33, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2)
    ).to(torch.bfloat16)
    for name, model in (("transformer", transformer), ("vae", vae), ("text_encoder", text)):
        model.save_pretrained(folder / "model" / name)
    diffusers.FlowMatchEulerDiscreteScheduler().save_pretrained(folder / "model" / "scheduler")
    index = {
        "_class_name": "WanPipeline",
        "_diffusers_version": diffusers.__version__,
        "transformer": ["diffusers", "WanTransformer3DModel"],
        "vae": ["diffusers", "AutoencoderKLWan"],
        "text_encoder": ["transformers", "UMT5EncoderModel"],
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "tokenizer": [None, None],
    }
    (folder / "model" / "model_index.json").write_text(json.dumps(index))
    wpack.convert(folder / "model", folder / "pipeline.wpack", progress=False)
    return folder / "model", folder / "pipeline.wpack"


class TestDiffusers:
    @pytest.mark.parametrize("component", ["transformer", "vae"])
    def test_equals_safetensors(self, pipeline: tuple[Path, Path], component: str) -> None:
        import diffusers
        from wpack.integrations.diffusers import from_pack

        folder, pack = pipeline
        cls = {"transformer": diffusers.WanTransformer3DModel, "vae": diffusers.AutoencoderKLWan}[component]
        model = from_pack(f"{pack}#{component}")
        # Given no type, diffusers casts to fp32; the pack's own types are what was saved.
        stored = {"transformer": torch.bfloat16, "vae": torch.float32}[component]
        saved = wpack.open(pack).shard(0, 1, component=component)
        for name, tensor in model.state_dict().items():
            assert same(tensor, saved[name])
        mapped(model, wpack.open(pack).digest)
        stock = cls.from_pretrained(folder / component, torch_dtype=stored)
        again = from_pack(pack, component=component, torch_dtype=stored)
        assert type(again) is cls and not again.training
        equal(again, stock)
        assert dict(again.config).keys() >= {"_class_name"}
        for key, value in stock.config.items():
            assert key.startswith("_") or again.config[key] == value

    def test_a_cast_equals_that_of_safetensors(self, pipeline: tuple[Path, Path]) -> None:
        import diffusers
        from wpack.integrations.diffusers import from_pack

        folder, pack = pipeline
        for dtype in (torch.float32, torch.float16):
            stock = diffusers.WanTransformer3DModel.from_pretrained(folder / "transformer", torch_dtype=dtype)
            equal(from_pack(f"{pack}#transformer", torch_dtype=dtype), stock)

    def test_a_whole_pipeline(self, pipeline: tuple[Path, Path]) -> None:
        import diffusers
        import transformers
        from wpack.integrations.diffusers import pipeline_from_pack

        folder, pack = pipeline
        whole = pipeline_from_pack(pack, tokenizer=None)
        assert type(whole) is diffusers.WanPipeline
        assert whole.scheduler.config.shift == 1.0
        digest = wpack.open(pack).digest
        for part in ("transformer", "vae", "text_encoder"):
            mapped(getattr(whole, part), digest)
        stock = transformers.UMT5EncoderModel.from_pretrained(folder / "text_encoder")
        equal(whole.text_encoder, stock)

    def test_what_is_refused(self, pipeline: tuple[Path, Path], llama: tuple[Path, Path], tmp_path: Path) -> None:
        from wpack.integrations._packs import PackReferenceError
        from wpack.integrations._refuse import QuantizedModelError
        from wpack.integrations.diffusers import LoadedKeysError, MissingConfigError, from_pack, pipeline_from_pack

        folder, pack = pipeline
        with pytest.raises(PackReferenceError, match="name the one that is meant"):
            from_pack(pack)
        with pytest.raises(MissingConfigError, match="model_index.json"):
            pipeline_from_pack(llama[1])
        with pytest.raises(MissingConfigError, match="UMT5|None"):
            from_pack(f"{pack}#text_encoder")
        changed = tmp_path / "vae"
        changed.mkdir()
        values = json.loads((folder / "vae" / "config.json").read_text())
        (changed / "config.json").write_text(json.dumps({**values, "quantization_config": {"quant_method": "gguf"}}))
        source = folder / "vae" / "diffusion_pytorch_model.safetensors"
        (changed / source.name).write_bytes(source.read_bytes())
        wpack.convert(changed, tmp_path / "quantised.wpack", progress=False)
        with pytest.raises(QuantizedModelError, match="gguf"):
            from_pack(tmp_path / "quantised.wpack")
        (changed / "config.json").write_text(json.dumps({**values, "base_dim": 16}))
        wpack.convert(changed, tmp_path / "wider.wpack", progress=False)
        with pytest.raises(LoadedKeysError, match="AutoencoderKLWan"):
            from_pack(tmp_path / "wider.wpack")


class TestAccelerate:
    def test_equals_load_checkpoint_in_model(self, llama: tuple[Path, Path]) -> None:
        import transformers
        from accelerate import init_empty_weights, load_checkpoint_in_model
        from wpack.integrations.accelerate import load_pack_in_model

        folder, pack = llama
        config = transformers.LlamaConfig.from_pretrained(folder)
        models = []
        for _ in range(2):
            with init_empty_weights(include_buffers=False):
                models.append(transformers.LlamaForCausalLM(config))
            models[-1].to(torch.bfloat16).tie_weights()
        stock, model = models
        load_checkpoint_in_model(stock, folder, device_map={"": "cpu"})
        stock.tie_weights()
        result = load_pack_in_model(model, pack, {"": "cpu"})
        assert not result.missing_keys and not result.unexpected_keys
        equal(model, stock)
        mapped(model, wpack.open(pack).digest)
        assert model.lm_head.weight is model.model.embed_tokens.weight

    def test_each_tensor_goes_where_the_map_says(self, llama: tuple[Path, Path]) -> None:
        import transformers
        from accelerate import init_empty_weights
        from wpack.integrations.accelerate import DeviceMapError, load_pack_in_model

        folder, pack = llama
        config = transformers.LlamaConfig.from_pretrained(folder)
        with init_empty_weights(include_buffers=False):
            model = transformers.LlamaForCausalLM(config)
        model.tie_weights()
        places = {"model.embed_tokens": "disk", "model.layers.0": "cpu", "model.layers.1": "meta", "model.norm": "cpu"}
        with pytest.raises(DeviceMapError, match="model.layers.0"):
            load_pack_in_model(model, pack, {"model.embed_tokens": "cpu"})
        with pytest.warns(UserWarning, match="meta device"):
            load_pack_in_model(model, pack, places, dtype=None)
        packs = MappedPacks()
        for name, parameter in model.named_parameters():
            assert parameter.is_meta == name.startswith("model.layers.1."), name
            assert parameter.is_meta or packs.origin(parameter) is not None, name

    def test_the_pack_is_untouched(self, llama: tuple[Path, Path]) -> None:
        from wpack.integrations.transformers import from_pack

        before = hashlib.sha256(llama[1].read_bytes()).hexdigest()
        model = from_pack(llama[1])
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)
        assert hashlib.sha256(llama[1].read_bytes()).hexdigest() == before
