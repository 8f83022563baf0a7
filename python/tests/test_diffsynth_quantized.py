"""DiffSynth-Studio's quantisation over packs: what it makes of a pack is what it makes of the files.

The machinery is DiffSynth's, the method one of ours: eight bits and a scale for each row. Its own methods need
compiled packages and a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("diffsynth.core.quant")

import torch  # noqa: E402
from diffsynth.core import QuantizeConfig  # noqa: E402
from diffsynth.core.loader.model import load_model  # noqa: E402
from diffsynth.core.quant.base import BackendConfig, QuantBackend, register_quant_backend  # noqa: E402
from diffsynth.core.quant.config import register_quant_method  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch import nn  # noqa: E402

import wpack  # noqa: E402
from wpack.integrations import diffsynth as adapter  # noqa: E402
from wpack.integrations._pages import MappedPacks, unwritten  # noqa: E402
from wpack.integrations._refuse import QuantizedModelError  # noqa: E402

FORMATS = "row_formats"


class Model(nn.Module):
    """Two layers to quantise and one to leave."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(96, 160)
        self.down = nn.Linear(160, 96)
        self.head = nn.Linear(96, 64, bias=False)


class RowsLinear(nn.Linear):
    """A linear layer of eight bits and a scale for each row."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        self.weight = nn.Parameter(torch.empty(self.out_features, self.in_features, dtype=torch.int8), requires_grad=False)
        self.register_buffer("scale", torch.empty(self.out_features, 1, dtype=torch.bfloat16))


@register_quant_backend("rows")
class Rows(QuantBackend):
    """The method."""

    def capabilities(self) -> dict[str, bool]:
        return {"is_serializable": True, "is_differentiable": False}

    def quantized_linear_classes(self) -> tuple[type, ...]:
        return (RowsLinear,)

    def create_quantized_linear(self, linear: nn.Linear, compute_device: Any = None, model_device: Any = None) -> nn.Module:
        made, weight = RowsLinear(linear), linear.weight.detach().float()
        scale = weight.abs().amax(dim=1, keepdim=True) / 127
        made.weight.data, made.scale = (weight / scale).round().to(torch.int8), scale.bfloat16()
        return made

    def create_quantized_linear_shell(self, linear: nn.Linear, compute_dtype: torch.dtype) -> nn.Module:
        return RowsLinear(linear)

    def unflatten_state_dict(self, state_dict: dict[str, Any], metadata: dict[str, str]) -> dict[str, Any]:
        formats = json.loads(metadata[FORMATS])
        assert all(name.rpartition(".")[0] in formats for name, tensor in state_dict.items() if tensor.dtype == torch.int8)
        return state_dict


register_quant_method("rows", "rows", BackendConfig.from_kwargs)


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    adapter.install()
    yield
    adapter.uninstall()


def load(path: Any, **options: Any) -> nn.Module:
    config = QuantizeConfig(method="rows", exclude_modules=["head"], **options)
    model: nn.Module = load_model(Model, path, torch_dtype=torch.bfloat16, device="cpu", quantize=config)
    return model


def same(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return list(left) == list(right) and all(torch.equal(left[name], right[name]) for name in left)


def shared(tensor: torch.Tensor) -> bool:
    return MappedPacks().origin(tensor) is not None and unwritten(tensor)


def test_quantised_while_loading(tmp_path: Path) -> None:
    """What is quantised becomes the process's own; the rest stays in the pack."""
    file, pack = tmp_path / "model.safetensors", tmp_path / "model.wpack"
    save_file({name: tensor.bfloat16() for name, tensor in Model().state_dict().items()}, file)
    wpack.convert(file, pack, progress=False)
    stock, ours = load(str(file)), load(str(pack))
    assert same(stock, ours)
    assert isinstance(ours.up, RowsLinear) and not shared(ours.up.weight)
    assert shared(ours.head.weight) and shared(ours.up.bias)


def quantised(folder: Path, shards: int) -> list[Path]:
    """Files of a model that was quantised before, each with its own part of the metadata."""
    method = Rows()
    model = Model().bfloat16()
    model.up, model.down = method.create_quantized_linear(model.up), method.create_quantized_linear(model.down)
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    parts = [state]
    if shards == 2:
        parts = [{name: state[name] for name in state if name.startswith("up.") is first} for first in (True, False)]
    files = [folder / f"part{at}.safetensors" for at in range(len(parts))]
    for file, part in zip(files, parts):
        layers = [name.rpartition(".")[0] for name, tensor in part.items() if tensor.dtype == torch.int8]
        save_file(part, file, metadata={FORMATS: json.dumps(layers)})
    return files


def test_quantised_before(tmp_path: Path) -> None:
    """The eight bits and the file's metadata come from the pack, shared."""
    (file,), pack = quantised(tmp_path, 1), tmp_path / "model.wpack"
    wpack.convert(file, pack, progress=False)
    stock, ours = load(str(file), load_prequantized=True), load(str(pack), load_prequantized=True)
    assert same(stock, ours)
    assert all(shared(tensor) for tensor in ours.state_dict().values())


def test_quantised_before_in_several_files(tmp_path: Path) -> None:
    """DiffSynth merges the metadata of shards by a rule of its own; a pack has kept that of the first."""
    files, pack = quantised(tmp_path, 2), tmp_path / "model.wpack"
    wpack.convert({"model": tmp_path / "part*.safetensors"}, pack, progress=False)
    assert isinstance(load([str(file) for file in files], load_prequantized=True).down, RowsLinear)
    with pytest.raises(QuantizedModelError, match=r"part0\.safetensors.*2 files") as error:
        load(str(pack), load_prequantized=True)
    assert "hint: load this model from its own files" in str(error.value)
