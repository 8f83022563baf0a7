"""DiffSynth-Studio's own models at full size: their files, and the tensors in them.

Names and shapes are read off the classes on the meta device, by the row of DiffSynth's table of known models that
a published checkpoint is recognised by; that they are the published ones is checked by the hash in that row.
``layers`` cuts the number of layers, for trying out; such models get rows of their own.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import small_models
import torch
from diffsynth.configs import MODEL_CONFIGS
from diffsynth.core.vram.initialization import skip_model_initialization

_WAN = "Wan-AI/Wan2.2-TI2V-5B"
_A14B = "Wan-AI/Wan2.2-I2V-A14B"
_SHARDS = "diffusion_pytorch_model{}.safetensors"


@dataclass(frozen=True)
class Published:
    """One model of a published checkpoint."""

    component: str
    model_id: str
    file: str
    shards: int
    model_hash: str
    stored: torch.dtype

    @property
    def origin(self) -> str:
        """How a command line names its files."""
        return f"{self.model_id}:{self.file.format('*')}"

    def files(self, folder: Path) -> list[Path]:
        """Its files under a folder of models."""
        labels = [f"-{n + 1:05d}-of-{self.shards:05d}" for n in range(self.shards)] if self.shards > 1 else [""]
        return [folder / self.model_id / self.file.format(label) for label in labels]

    def source(self, folder: Path) -> str:
        """One argument for the converter that names all of them."""
        return f"{self.component}={folder / self.model_id / self.file.format('*' if self.shards > 1 else '')}"

    def pack(self, folder: Path) -> Path:
        """Where its pack lies under a folder of packs."""
        return folder / f"{self.model_id.rpartition('/')[2]}.{self.component}.wpack"


# In the order that needs the least room on the disk: each is converted from its files, and they are deleted. The
# DiT, which is published in fp32, is made in bf16 for that; the VAE is cast.
TI2V_5B = [
    Published(
        "text_encoder", _WAN, "models_t5_umt5-xxl-enc-bf16.pth", 1, "9c8818c2cbea55eca56c7b447df170da", torch.bfloat16
    ),
    Published("dit", _WAN, _SHARDS, 3, "1f5ab7703c6fc803fdded85ff040c316", torch.bfloat16),
    Published("vae", _WAN, "Wan2.2_VAE.pth", 1, "e1de6c02cdac79f8b739f4d3698cd216", torch.float32),
]

# Stand-ins: in the type that they are used in.
I2V_A14B = [
    Published("high_noise_model", _A14B, f"high_noise_model/{_SHARDS}", 6, "5b013604280dd715f8457c6ed6d6a626", torch.bfloat16),
    Published("low_noise_model", _A14B, f"low_noise_model/{_SHARDS}", 6, "5b013604280dd715f8457c6ed6d6a626", torch.bfloat16),
    Published(
        "text_encoder", _A14B, "models_t5_umt5-xxl-enc-bf16.safetensors", 1, "9c8818c2cbea55eca56c7b447df170da", torch.bfloat16
    ),
    Published("vae", _A14B, "Wan2.1_VAE.safetensors", 1, "ccc42284ea13e1ad04693284c7a09be6", torch.bfloat16),
]

QWEN_IMAGE_EDIT = [
    Published("transformer", "Qwen/Qwen-Image-Edit-2509", f"transformer/{_SHARDS}", 5, "0319a1cb19835fb510907dd3367c95ff", torch.bfloat16),
    Published("text_encoder", "Qwen/Qwen-Image", "text_encoder/model{}.safetensors", 4, "8004730443f55db63092006dd9f7110e", torch.bfloat16),
    Published("vae", "Qwen/Qwen-Image", "vae/diffusion_pytorch_model.safetensors", 1, "ed4ea5824d55ec3107b09815e318123a", torch.bfloat16),
]


def shapes(model: Published, layers: int | None) -> dict[str, list[int]]:
    """Names, as in the checkpoint files, and shapes; nothing is allocated."""
    row = _row(model, layers)
    return _file_names(row, class_of(row["model_class"]), row.get("extra_kwargs", {}))


def made_of(model: Published, layers: int | None) -> tuple[str, dict[str, Any]]:
    """The class that DiffSynth makes for it, and the arguments."""
    row = _row(model, layers)
    return row["model_class"], row.get("extra_kwargs", {})


def register(folder: Path, models: Sequence[Published], layers: int | None) -> None:
    """Writes ``models.json``: rows for models that DiffSynth's table does not have."""
    rows = [] if layers is None else [_row(model, layers) for model in models]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "models.json").write_text(json.dumps(rows), encoding="utf-8")


def _row(model: Published, layers: int | None) -> dict[str, Any]:
    """The model's row; with fewer layers one that no published model has."""
    row: dict[str, Any] = next(dict(row) for row in MODEL_CONFIGS if row["model_hash"] == model.model_hash)
    cls, arguments = class_of(row["model_class"]), dict(row.get("extra_kwargs", {}))
    found = small_models.model_hash(_file_names(row, cls, arguments))
    if found != model.model_hash:
        raise SystemExit(f"{model.origin}: the class has not the published names and shapes: {found}, not {model.model_hash}")
    takes = inspect.signature(cls).parameters
    if layers is None:
        return row
    if "num_layers" in takes:
        arguments["num_layers"] = layers
    if "vocab" in takes:
        arguments["vocab"] = small_models.VOCABULARY
    return row | {"extra_kwargs": arguments, "model_hash": small_models.model_hash(_file_names(row, cls, arguments))}


def class_of(path: str) -> Any:
    """A class by module and name."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _file_names(row: dict[str, Any], cls: Any, arguments: dict[str, Any]) -> dict[str, list[int]]:
    with skip_model_initialization():
        state = cls(**arguments).state_dict()
    kind = {"wan_video_vae": "wan_vae", "qwen_image_text_encoder": "qwen_text"}.get(row["model_name"], "")
    return {small_models.file_name(kind, name): list(tensor.shape) for name, tensor in state.items()}
