"""Loads to a CUDA device; skipped where there is none."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
wpack = pytest.importorskip("wpack")

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

sys.path.insert(0, str(Path(__file__).parents[2] / "python" / "tests"))
from states import every_dtype, filled, same  # noqa: E402


@pytest.fixture
def pack(tmp_path):
    def make(state):
        from safetensors.torch import save_file

        save_file(state, tmp_path / "source.safetensors")
        wpack.convert(tmp_path / "source.safetensors", tmp_path / "x.wpack", layout="replicate", overwrite=True, progress=False)
        return wpack.open(tmp_path / "x.wpack")

    return make


@pytest.mark.parametrize("group_bytes", [None, 1 << 20])
def test_every_dtype(pack, group_bytes):
    state = every_dtype()
    found = pack(state).shard(0, 1).state_dict("cuda:0", group_bytes=group_bytes, progress=False)
    assert all(tensor.is_cuda for tensor in found.values())
    assert all(same(found[name].cpu(), tensor) for name, tensor in state.items())


def test_memory_that_a_busy_stream_still_uses(pack):
    """Destinations come from memory that kernels of the program's stream are still reading and writing."""
    state = {f"t{i}": filled((512, 1024), torch.float32, i) for i in range(16)}
    shard = pack(state).shard(0, 1)
    wanted = {name: tensor.cuda() for name, tensor in state.items()}
    for _ in range(20):
        busy = [torch.randn(512, 1024, device="cuda") for _ in range(16)]
        for _ in range(20):
            for tensor in busy:
                tensor.mul_(1.0001)
        del busy
        found = shard.state_dict("cuda:0", progress=False)
        sums = {name: tensor.view(torch.int32).sum() for name, tensor in found.items()}
        assert all(torch.equal(sums[name], tensor.view(torch.int32).sum()) for name, tensor in wanted.items())


def test_out_tensors(pack):
    state = {"x": filled((1000, 1000), torch.bfloat16)}
    mine = {"x": torch.zeros(1000, 1000, dtype=torch.bfloat16, device="cuda")}
    found = pack(state).shard(0, 1).state_dict(out=mine, progress=False)
    assert found["x"] is mine["x"] and same(mine["x"].cpu(), state["x"])


def test_pinned_memory_is_bounded(pack):
    state = {f"t{i}": filled((4 << 20,), torch.uint8, i) for i in range(64)}
    shard = pack(state).shard(0, 1)
    shard.state_dict("cuda:0", progress=False)
    assert 0 < shard.stats.ring_bytes <= 128 << 20 and "pinned" in shard.stats.path
