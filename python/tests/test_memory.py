"""Promises about memory and bytes read, each with processes."""

import json
import os

import pytest

torch = pytest.importorskip("torch")

import wpack
from states import filled, model_like, same

MIB = 1 << 20

PREAMBLE = """
import json, os, sys, torch, wpack
def rollup():
    with open("/proc/self/smaps_rollup") as file:
        return {l.split(":")[0]: int(l.split()[1]) * 1024 for l in file if l.endswith("kB\\n")}
def read_bytes():
    with open("/proc/self/io") as file:
        return dict(l.split(": ") for l in file.read().splitlines())["read_bytes"]
def touch(state):
    return sum(int(t.reshape(-1).view(torch.uint8)[:: 4096].sum()) for t in state.values() if t.numel())
"""


def evict(path):
    with open(path, "rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident(path):
    """Which pages of a file are in the page cache."""
    import ctypes
    import mmap

    size = os.path.getsize(path)
    pages = -(-size // mmap.PAGESIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    with open(path, "rb") as file:
        area = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    vector = (ctypes.c_ubyte * pages)()
    anchor = ctypes.c_char.from_buffer(area)
    assert libc.mincore(ctypes.addressof(anchor), size, ctypes.addressof(vector)) == 0
    del anchor
    area.close()
    return [bool(byte & 1) for byte in vector]


@pytest.fixture
def large(convert):
    """64 MiB of weights in 64 tensors."""
    return convert({f"layer.{i}": filled((256, 1024), torch.float32, i) for i in range(64)})


@pytest.mark.parametrize("prefetch", [None, "node"])
def test_four_processes_share_the_pages_of_a_replicated_pack(large, run, prefetch):
    """No private memory for weights in any of four processes, and each byte read from storage about once."""
    evict(large)
    code = PREAMBLE + """
import multiprocessing as mp
def work(rank, path, prefetch, barrier, out):
    torch.set_num_threads(1)
    torch.zeros(1).sum()
    before, read = rollup(), int(read_bytes())
    barrier.wait()
    state = wpack.open(path).shard(rank, 4).state_dict(prefetch=prefetch, progress=False)
    touch(state)
    barrier.wait()
    after = rollup()
    out.put((after["Anonymous"] - before["Anonymous"], int(read_bytes()) - read, after["Pss"] - before["Pss"]))
    barrier.wait()
path, prefetch = sys.argv[1], sys.argv[2] or None
context = mp.get_context("fork")
barrier, out = context.Barrier(4), context.Queue()
ranks = [context.Process(target=work, args=(r, path, prefetch, barrier, out)) for r in range(4)]
for rank in ranks: rank.start()
rows = [out.get(timeout=100) for _ in ranks]
for rank in ranks: rank.join()
print(json.dumps(rows))
"""
    rows = run(code, large, prefetch or "")
    size = os.path.getsize(large)
    assert max(anon for anon, _, _ in rows) < 16 * MIB
    # A file system in memory reads nothing; on a disk the pages are read about once for all.
    assert sum(read for _, read, _ in rows) <= 1.25 * size + MIB
    assert sum(pss for _, _, pss in rows) < 1.5 * size


def test_a_rank_touches_its_own_extents_only(convert):
    state = {f"layer.{i}": filled((1024, 1024), torch.float32, i) for i in range(16)}
    path = convert(state, "fsdp2", 4)
    pack = wpack.open(path)
    shard = pack.shard(2, 4)
    spans = [(offset, length) for _, offset, length, _ in pack._open.extents]
    assert len(spans) == 4
    evict(path)
    if any(resident(path)):
        pytest.skip("the file system does not let pages go")
    tensors = shard.state_dict()
    for tensor in tensors.values():
        tensor.sum()
    # Only the rank's own extent is mapped, and every page of it is there.
    with open("/proc/self/maps") as file:
        mapped = [line.split() for line in file if str(path) in line]
    start, length = spans[2]
    assert [int(row[2], 16) for row in mapped] == [start]
    first, last = (int(end, 16) for end in mapped[0][0].split("-"))
    assert last - first == -(-length // 4096) * 4096
    pages = resident(path)
    assert all(pages[start // 4096 : (start + length) // 4096])
    # The kernel reads around a fault, so a stretch of the neighbours may come along; the extent of rank 0
    # lies 16 MiB away.
    assert not any(pages[spans[0][0] // 4096 : (spans[0][0] + spans[0][1]) // 4096])


def test_the_state_dict_reads_nothing(large):
    evict(large)
    state = wpack.open(large).shard().state_dict()
    pages = resident(large)
    assert sum(pages) * 4096 < 16 * MIB
    assert len(state) == 64


def test_writes_stay_in_the_process(large, run, tmp_path):
    """One process writes in place; the file and another process do not see it."""
    with open(large, "rb") as file:
        original = file.read()
    code = PREAMBLE + """
state = wpack.open(sys.argv[1]).shard().state_dict()
before = rollup()
print("ready", flush=True)
sys.stdin.readline()
state["layer.0"].zero_()
state["layer.1"][3] += 1
changed = rollup()["Anonymous"] - before["Anonymous"]
other = wpack.open(sys.argv[1]).shard().state_dict()["layer.0"]
print(json.dumps([float(state["layer.0"].view(torch.uint8).sum()), changed, bool((other.view(torch.uint8) == 0).all())]))
"""
    import subprocess
    import sys

    mine = wpack.open(large).shard().state_dict()
    first = mine["layer.0"].clone()
    child = subprocess.Popen([sys.executable, "-c", code, large], stdin=-1, stdout=-1, text=True)
    assert child.stdout.readline() == "ready\n"
    text, _ = child.communicate("go\n", timeout=60)
    total, changed, other = json.loads(text)
    assert total == 0 and other is False
    # One tensor and one row became private: no more than that.
    assert MIB <= changed < 3 * MIB
    assert same(mine["layer.0"], first)
    with open(large, "rb") as file:
        assert file.read() == original


def test_state_dicts_do_not_share_writes(convert):
    shard = wpack.open(convert(model_like())).shard()
    one, two = shard.state_dict(), shard.state_dict()
    one["rows"].zero_()
    assert not same(one["rows"], two["rows"])


def test_storages_are_the_tensors_own(convert, tmp_path):
    """Saving one tensor writes that tensor, not the file."""
    shard = wpack.open(convert({f"t{i}": filled((1000,), torch.float32, i) for i in range(100)})).shard()
    state = shard.state_dict()
    assert len({t.untyped_storage().data_ptr() for t in state.values()}) == 100
    assert all(t.untyped_storage().nbytes() == t.nbytes for t in state.values())
    torch.save({"t3": state["t3"]}, tmp_path / "one.pt")
    assert os.path.getsize(tmp_path / "one.pt") < 8000


def test_a_tensor_outlives_everything_else(convert):
    import gc

    state = model_like()
    pack = wpack.open(convert(state))
    tensor = pack.shard().state_dict()["embed.weight"]
    part = pack.shard().get_slice("embed.weight")[2:4]
    view = pack.shard().view("embed.weight")
    pack.close()
    del pack
    gc.collect()
    assert same(tensor, state["embed.weight"]) and same(part, state["embed.weight"][2:4])
    assert view.nbytes == tensor.nbytes
    with pytest.raises(wpack.errors.ClosedError):
        closed = wpack.open(convert(state))
        closed.close()
        closed.shard()


def test_the_mapping_goes_with_the_last_tensor(convert):
    import gc

    path = str(convert(model_like()))

    def mapped():
        with open("/proc/self/maps") as file:
            return sum(path in line for line in file)

    state = wpack.open(path).shard().state_dict()
    assert mapped() == 1, "one mapping for each extent"
    last = state.pop("rows")
    del state
    gc.collect()
    assert mapped() == 1
    del last
    gc.collect()
    assert mapped() == 0


def test_a_fork_sees_the_tensors(convert):
    state = model_like()
    tensors = wpack.open(convert(state)).shard().state_dict()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b"y" if all(same(tensors[k], state[k]) for k in state) else b"n")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 1) == b"y"


def test_a_hundred_thousand_tensors(tmp_path):
    """As many tensors as the largest checkpoints have, each with a storage of its own."""
    from safetensors.torch import save_file

    base = filled((100_000, 8), torch.bfloat16)
    save_file({f"blocks.{i // 16}.part{i % 16}.weight": row for i, row in enumerate(base.clone().unbind())}, tmp_path / "many.safetensors")
    wpack.convert(tmp_path / "many.safetensors", tmp_path / "many.wpack", layout="replicate", progress=False)
    state = wpack.open(tmp_path / "many.wpack").shard().state_dict()
    assert len(state) == 100_000
    for i in (0, 1, 54_321, 99_999):
        tensor = state[f"blocks.{i // 16}.part{i % 16}.weight"]
        assert torch.equal(tensor, base[i]) and tensor.untyped_storage().nbytes() == 16
