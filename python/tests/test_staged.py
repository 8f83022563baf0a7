"""The device path on CPU tensors: torch's ring, the sink, cancelling, errors, progress."""

import os
import threading
import time

import pytest

torch = pytest.importorskip("torch")

import wpack
from states import every_dtype, filled, same
from wpack import _stage, errors

MIB = 1 << 20


@pytest.fixture
def large(convert):
    state = {f"t{i}": filled((1024, 1024), torch.float32, i) for i in range(24)}
    return state, convert(state)


def ring(path, **options):
    options = {"out": None, "verify": True, "group_bytes": None, "progress": None, "ring": True, **options}
    return _stage.load(wpack.open(path).shard()._native, torch.device("cpu"), **options)


@pytest.mark.parametrize("budget", [8, 17, 128])
def test_the_ring_gives_every_bit(large, budget):
    state, path = large
    found, stats = ring(path, budget=budget * MIB + (1 << 16))
    assert all(same(found[name], tensor) for name, tensor in state.items())
    assert stats.ring_bytes <= budget * MIB + (1 << 16) and "ring" in stats.path
    assert stats.bytes == sum(t.nbytes for t in state.values()) == stats.stages["copied_bytes"]
    assert stats.verified_bytes >= stats.bytes


def test_the_ring_takes_every_dtype(convert):
    state = every_dtype()
    found, _ = ring(convert(state))
    assert all(same(found[name], tensor) for name, tensor in state.items())


def test_a_ring_without_room_is_an_error(large):
    with pytest.raises(wpack.WpackError) as caught:
        ring(large[1], budget=1 * MIB)
    assert caught.value.code == "ring-budget"


class Late(_stage.Sink):
    """Copies end late, in the order of a device's queue; a slot is overwritten when it is handed back, so
    that a copy that was still running would show."""

    def __init__(self, *args):
        super().__init__(*args)
        self.queue = []
        self.most = 0

    def copy(self, slot, parts):
        self.queue.append((time.monotonic() + 0.003, slot, parts))
        self.most = max(self.most, len(self.queue))

    def done(self, slot):
        end, first, parts = self.queue[0]
        assert first == slot
        if time.monotonic() < end:
            return False
        super().copy(slot, parts)
        self.ring[slot].fill_(0xA5)
        self.queue.pop(0)
        return True

    def drain(self):
        self.queue.clear()


def test_slots_are_not_reused_before_their_copy_is_done(large, monkeypatch):
    state, path = large
    made = []
    monkeypatch.setattr(_stage, "Sink", lambda *args: made.append(Late(*args)) or made[-1])
    found, stats = ring(path)
    assert all(same(found[name], tensor) for name, tensor in state.items())
    assert made[0].most >= 1 and stats.stages["device_wait_seconds"] > 0


@pytest.mark.parametrize("at", range(0, 14, 3))
def test_an_error_of_the_sink_at_any_copy(large, monkeypatch, at):
    class Failing(_stage.Sink):
        copies = drained = 0

        def copy(self, slot, parts):
            if self.copies == at:
                raise ZeroDivisionError("the device is gone")
            self.copies += 1
            super().copy(slot, parts)

        def drain(self):
            Failing.drained += 1

    monkeypatch.setattr(_stage, "Sink", Failing)
    state, path = large
    blocks = -(-sum(t.nbytes for t in state.values()) // (8 * MIB))
    if at < blocks:
        with pytest.raises(ZeroDivisionError, match="gone"):
            ring(path)
    assert at >= blocks or Failing.drained == 1
    monkeypatch.undo()
    assert same(ring(path)[0]["t3"], state["t3"])


@pytest.mark.parametrize("way", [{"ring": True}, {"ring": False}])
def test_a_progress_function_stops_the_load(large, way):
    class Stop(Exception):
        pass

    calls = []

    def progress(what, done, total):
        calls.append((what, done, total))
        raise Stop

    with pytest.raises(Stop):
        ring(large[1], progress=progress, **way)
    assert same(ring(large[1], **way)[0]["t1"], large[0]["t1"])


def test_progress_counts_up_to_all(large):
    calls = []
    wpack.open(large[1]).shard().state_dict(eager=True, progress=lambda *call: calls.append(call))
    what, done, total = calls[-1]
    assert what == "load" and done == total >= 96 * MIB
    assert [c[1] for c in calls] == sorted(c[1] for c in calls)


@pytest.mark.parametrize("way", [{"ring": True}, {"ring": False}])
def test_damage_and_cuts_are_errors(large, way):
    _, path = large
    shard = wpack.open(path).shard()
    offset = wpack.open(path)._open.extents[0][1]
    with open(path, "r+b") as file:
        file.seek(offset + 30 * MIB)
        file.write(b"damage")
    options = {"out": None, "verify": True, "group_bytes": None, "progress": None, **way}
    with pytest.raises(wpack.WpackError) as caught:
        _stage.load(shard._native, torch.device("cpu"), **options)
    assert caught.value.code in ("checksum-mismatch", "changed-while-read")
    with pytest.raises(errors.ChecksumMismatchError, match="block 3"):
        ring(path, **way)
    os.truncate(path, 40 * MIB)
    with pytest.raises(wpack.WpackError) as caught:
        _stage.load(shard._native, torch.device("cpu"), **options)
    assert caught.value.code in ("truncated", "changed-while-read", "checksum-mismatch")


def test_other_threads_run_meanwhile(large):
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    wpack.open(large[1]).shard().verify(threads=1, progress=False)
    end = time.monotonic()
    stop.set()
    thread.join()
    assert len([t for t in ticks if start < t < end]) >= (end - start) / 0.1


def test_ctrl_c_stops_a_load(run, tmp_path):
    """A signal while bytes move raises KeyboardInterrupt soon, and the interpreter goes on."""
    code = """
    import json, os, signal, sys, threading, time, torch, wpack
    from safetensors.torch import save_file
    from wpack import _stage
    path = sys.argv[1]
    # Ignored in what a shell starts in the background; then nothing could interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    save_file({f"t{i}": torch.full((1024, 1024), i, dtype=torch.float32) for i in range(16)}, path + ".safetensors")
    wpack.convert(path + ".safetensors", path, layout="replicate", progress=False)
    class Slow(_stage.Sink):
        def copy(self, slot, parts):
            time.sleep(0.2)
            super().copy(slot, parts)
    _stage.Sink, fast = Slow, _stage.Sink
    shard = wpack.open(path).shard()
    load = lambda: _stage.load(shard._native, torch.device("cpu"), out=None, verify=True, group_bytes=None, progress=None, ring=True)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    try:
        load()
        print(json.dumps("not interrupted"))
    except KeyboardInterrupt:
        took = time.monotonic() - start
        _stage.Sink = fast
        print(json.dumps([took, float(load()[0]["t3"].sum())]))
    """
    took, total = run(code, tmp_path / "x.wpack")
    assert took < 1.5 and total == 3 * (1 << 20)
