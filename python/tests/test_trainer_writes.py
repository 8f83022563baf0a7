"""What trainers do to weights in place gives the same on a pack's memory, and leaves the file alone."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import wpack  # noqa: E402
from states import same  # noqa: E402
from wpack.integrations._pages import MappedPacks, unwritten  # noqa: E402

WIDTH = 64


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Any) -> Any:
        return self.norm(self.down(torch.tanh(self.up(x))))


def train(model: Any, steps: int = 2, optimizer: Any = None) -> Any:
    torch.manual_seed(3)
    optimizer = optimizer or torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, WIDTH)).pow(2).sum().backward()
        optimizer.step()
    return optimizer


def adamw(model: Any, folder: Path) -> Any:
    train(model)
    return model


def merge(model: Any, folder: Path) -> Any:
    peft = pytest.importorskip("peft")
    torch.manual_seed(5)
    settings = peft.LoraConfig(r=4, target_modules=["up", "down"], init_lora_weights=False)
    wrapped = peft.get_peft_model(model, settings)
    train(wrapped)
    return wrapped.merge_and_unload()


def fuse(model: Any, folder: Path) -> Any:
    torch.manual_seed(6)
    for layer in (model.up, model.down):
        a, b = torch.randn(4, layer.in_features), torch.randn(layer.out_features, 4)
        layer.weight.data += 0.5 * torch.mm(b, a)
    return model


def load_in_place(model: Any, folder: Path) -> Any:
    torch.manual_seed(7)
    model.load_state_dict(Model().state_dict())
    return model


def resume(model: Any, folder: Path) -> Any:
    """Two steps, a checkpoint, and two more steps of a model that was loaded again."""
    optimizer = train(model)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "checkpoint.pt")
    again = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in again.parameters():
            parameter.zero_()
    saved = torch.load(folder / "checkpoint.pt")
    again.load_state_dict(saved["model"])
    optimizer = torch.optim.AdamW(again.parameters(), lr=1e-2)
    optimizer.load_state_dict(saved["optimizer"])
    train(again, 2, optimizer)
    return again


def checkpointed(model: Any, folder: Path) -> Any:
    """Gradient checkpointing with what is kept for the backward pass offloaded."""
    from torch.utils.checkpoint import checkpoint

    forward = model.forward
    model.forward = lambda x: checkpoint(forward, x, use_reentrant=False)
    with torch.autograd.graph.save_on_cpu():
        train(model)
    del model.forward
    return model


def half(model: Any, folder: Path) -> Any:
    """To another type and back, as offloading does."""
    return model.to(torch.bfloat16).to(torch.float32)


OPERATIONS = [adamw, merge, fuse, load_in_place, resume, checkpointed, half]


@pytest.fixture
def pack(convert: Any) -> Any:
    torch.manual_seed(1)
    return convert(Model().state_dict())


@pytest.fixture(autouse=True)
def untouched(pack: Path) -> Any:
    """Whatever a test does: the file stays, and a fresh load gives what was packed."""
    before = hashlib.sha256(pack.read_bytes()).hexdigest()
    yield
    assert hashlib.sha256(pack.read_bytes()).hexdigest() == before
    torch.manual_seed(1)
    expected = Model().state_dict()
    assert all(same(tensor, expected[name]) for name, tensor in wpack.open(pack).shard(0, 1).state_dict().items())


def loaded(pack: Path) -> Any:
    with torch.device("meta"):
        model = Model()
    wpack.open(pack).shard(0, 1).load_into(model)
    origins = MappedPacks()
    assert all(origins.origin(p) is not None and unwritten(p) for p in model.parameters())
    return model


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda f: f.__name__)
def test_the_same_as_with_ordinary_tensors(pack: Path, tmp_path: Path, operation: Callable[..., Any]) -> None:
    torch.manual_seed(1)
    ordinary, bystander, mapped = Model(), loaded(pack), loaded(pack)
    start = {name: tensor.clone() for name, tensor in ordinary.state_dict().items()}
    expected = operation(ordinary, tmp_path).state_dict()
    found = operation(mapped, tmp_path).state_dict()
    assert list(expected) == list(found)
    assert not same(expected["up.weight"], start["up.weight"]), "the operation changes something"
    for name, tensor in expected.items():
        assert same(found[name], tensor), name
    # Another load in this process sees nothing of it.
    for name, tensor in bystander.state_dict().items():
        assert same(tensor, start[name]), name
    assert all(unwritten(parameter) for parameter in bystander.parameters())


def test_what_is_frozen_stays_shared(pack: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(loaded(pack), peft.LoraConfig(r=4, target_modules=["up", "down"]))
    train(model)
    for name, parameter in model.named_parameters():
        if "lora" not in name and name.endswith("base_layer.weight"):
            assert MappedPacks().origin(parameter) is not None and unwritten(parameter), name


def test_saving(pack: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = loaded(pack)
    torch.manual_seed(1)
    expected = Model().state_dict()
    torch.save(model.state_dict(), tmp_path / "all.pt")
    torch.save(model.norm.weight, tmp_path / "one.pt")
    assert (tmp_path / "one.pt").stat().st_size < 4096, "one tensor's bytes, not the pack's"
    save_file(model.state_dict(), tmp_path / "all.safetensors")
    for again in (torch.load(tmp_path / "all.pt"), load_file(tmp_path / "all.safetensors")):
        assert sorted(again) == sorted(expected)
        assert all(same(again[name], tensor) for name, tensor in expected.items())
    assert all(unwritten(parameter) for parameter in model.parameters())


def test_copies_and_pickles(pack: Path) -> None:
    model = loaded(pack)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all(same(one, two) for one, two in zip(again.state_dict().values(), model.state_dict().values()))
        assert all(MappedPacks().origin(parameter) is None for parameter in again.parameters())
        with torch.no_grad():
            again.up.weight.zero_()
        assert model.up.weight.abs().sum() > 0 and unwritten(model.up.weight)


def _total(tensor: Any) -> Any:
    tensor.mul_(2)  # the worker's own memory, or memory that both share: never the file's
    return tensor.sum().item()


def test_sending_to_a_worker(pack: Path) -> None:
    import torch.multiprocessing as mp

    model = loaded(pack)
    expected = model.up.weight.detach().double().sum().item() * 2
    with mp.get_context("fork").Pool(1) as pool:
        found = pool.apply(_total, (model.up.weight.detach(),))
    assert found == pytest.approx(expected, abs=1e-3)
