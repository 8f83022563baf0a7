"""Frozen weights of one pack stay shared when DDP wraps a model; whatever is not proven equal is broadcast."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch import nn  # noqa: E402

import wpack  # noqa: E402
from wpack.integrations._frozen import GUARD  # noqa: E402
from wpack.integrations._pages import MappedPacks, unwritten  # noqa: E402

SIZE = 512


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(SIZE, SIZE, bias=False)
        self.other = nn.Linear(SIZE, SIZE, bias=False)
        self.trained = nn.Linear(SIZE, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.trained(self.other(self.base(x)))


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frozen")
    torch.manual_seed(0)
    save_file({k: v.contiguous() for k, v in Model().state_dict().items()}, folder / "model.safetensors")
    wpack.convert([folder / "model.safetensors"], folder / "model.wpack", layout="replicate")
    return folder / "model.wpack"


def _load(pack: Path) -> Model:
    with torch.device("meta"):
        model = Model()
    wpack.open(pack).shard(rank=0, world_size=1).load_into(model)
    model.base.requires_grad_(False)
    model.other.requires_grad_(False)
    return model


def _wrap(rank: int, world: int, port: int, pack: Path, guarded: bool, written: bool, results: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    model = _load(pack)
    if written and rank == 1:
        with torch.no_grad():
            model.other.weight[0, 0] += 1
    if guarded:
        GUARD.install()
    wrapped = nn.parallel.DistributedDataParallel(model)
    loss = wrapped(torch.ones(2, SIZE)).sum()
    loss.backward()
    torch.save(
        {
            "kept": GUARD.kept,
            "base": unwritten(model.base.weight),
            "other": unwritten(model.other.weight),
            "value": model.other.weight[0, 0].item(),
            "loss": loss.item(),
            "grad": wrapped.module.trained.weight.grad,
        },
        f"{results}/{rank}.pt",
    )
    dist.destroy_process_group()


def _run(pack: Path, folder: Path, port: int, *, guarded: bool, written: bool) -> list[dict[str, object]]:
    mp.spawn(_wrap, args=(2, port, pack, guarded, written, str(folder)), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.fixture
def port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
class TestDistributedDataParallel:
    def test_stock_writes_the_pages_of_ranks_that_receive(self, pack: Path, tmp_path: Path, port: int) -> None:
        results = _run(pack, tmp_path, port, guarded=False, written=False)
        assert not results[1]["base"]

    def test_guarded_writes_none(self, pack: Path, tmp_path: Path, port: int) -> None:
        results = _run(pack, tmp_path, port, guarded=True, written=False)
        for result in results:
            assert result["kept"] == [["base.weight", "other.weight"]]
            assert result["base"] and result["other"]
        assert results[0]["loss"] == results[1]["loss"]
        assert torch.equal(results[0]["grad"], results[1]["grad"])  # type: ignore[arg-type]

    def test_a_weight_that_one_rank_wrote_is_broadcast(self, pack: Path, tmp_path: Path, port: int) -> None:
        results = _run(pack, tmp_path, port, guarded=True, written=True)
        for result in results:
            assert "other.weight" not in result["kept"][0]  # type: ignore[index]
            assert "base.weight" in result["kept"][0]  # type: ignore[index]
        assert results[0]["value"] == results[1]["value"], "rank 0's value reached rank 1"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
class TestOrigin:
    def test_names_digest_and_place(self, pack: Path) -> None:
        opened = wpack.open(pack)
        model = _load(pack)
        origin = MappedPacks().origin(model.base.weight)
        assert origin is not None and origin[0] == opened.digest
        assert origin[1] % 4096 == 0

    def test_other_memory_has_none(self, pack: Path) -> None:
        packs = MappedPacks()
        assert packs.origin(torch.zeros(4096)) is None
        model = _load(pack)
        assert packs.origin(model.base.weight.clone()) is None

    def test_a_replaced_file_has_none(self, pack: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copy.wpack"
        copy.write_bytes(pack.read_bytes())
        model = _load(copy)
        assert MappedPacks().origin(model.base.weight) is not None
        other = tmp_path / "other.wpack"
        other.write_bytes(pack.read_bytes())
        other.replace(copy)
        assert MappedPacks().origin(model.base.weight) is None

    def test_a_write_shows(self, pack: Path) -> None:
        model = _load(pack)
        assert unwritten(model.base.weight)
        with torch.no_grad():
            model.base.weight[5, 5] = 0
        assert not unwritten(model.base.weight)
        assert unwritten(model.other.weight)
