"""The converter as a process of its own, measured; and packs of sparse files that take no room on the disk."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import large_files
import runs
import watch

import wpack

_COMMAND = [sys.executable, "-c", "import sys; from wpack._command import main; sys.exit(main())"]
_LIBC = ctypes.CDLL("libc.so.6", use_errno=True)
_PAGE = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2

#: What a disk that others use as well keeps free.
SPARE = 12 << 30


@dataclass
class Conversion:
    """What one conversion took."""

    pack: Path
    read: int
    written: int
    seconds: float
    processor: float
    own_memory: int
    """The most memory that the process had of its own."""


def convert(sources: Sequence[str], pack: Path, *, timeout: float = 1800) -> Conversion:
    """``wpack convert`` to bf16."""
    return _convert(sources, pack, watch.Watch(), timeout)


def convert_sparse(sources: Sequence[str], pack: Path, *, timeout: float = 1800) -> Conversion:
    """``wpack convert`` of sparse files, to a pack that is sparse as well.

    The converter writes every zero, but cannot reserve the room for them. Behind it they are taken out of the
    file again, in the ranges that its plan says hold tensors and nothing else: what can be read of the pack is
    not changed by that.
    """
    ranges = [(row["offset"], row["bytes"]) for row in _json("plan", *sources, "--dtype", "bf16")["extents"]]
    length = max(offset + size for offset, size in ranges)
    made = _followed(sources, pack, length, lambda file: _punch(file, ranges), timeout)
    with open(pack, "r+b") as file:
        _punch(file.fileno(), ranges)
        os.fsync(file.fileno())
    return made


def convert_taking(sources: Sequence[str], files: Sequence[Path], pack: Path, *, timeout: float = 1800) -> Conversion:
    """``wpack convert`` of safetensors files whose bytes are taken off the disk as they get into the pack: both
    never lie there in full. The files are of no use afterwards."""
    plan = _json("plan", *sources, "--dtype", "bf16", "--tensors")
    there = {name: place for file in files for name, place in large_files.places(file).items()}
    start = plan["extents"][0]["offset"]
    moves, end = [], start
    for row in plan["tensors"]:
        path, at, size = there[row["source_names"][0]]
        # At most a page lies between two tensors; in the order of the plan.
        end += row["bytes"] + _PAGE
        moves.append((end, path, at, size))

    def take(file: int) -> None:
        written = os.lseek(file, start, os.SEEK_HOLE)
        while moves and moves[0][0] <= written:
            _, path, at, size = moves.pop(0)
            with open(path, "r+b") as source:
                _punch(source.fileno(), [(at, size)])

    length = start + plan["extents"][0]["bytes"]
    return _followed(sources, pack, length, take, timeout)


def verify(pack: Path, *, timeout: float = 1800) -> float:
    """``wpack verify``; the seconds that it took."""
    watched = watch.Watch()
    _checked(watched([*_COMMAND, "verify", str(pack), "--quiet"], timeout=timeout))
    return watched.seconds


def room(folder: Path, needed: int) -> None:
    """Ends the report if the disk has not that many bytes and some to spare."""
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if free < needed + SPARE:
        raise SystemExit(f"{folder} has {free / 1e9:.1f} GB free; needed are {needed / 1e9:.1f} GB, and {SPARE / 1e9:.1f} GB to spare")


def on_disk(path: Path) -> int:
    """Bytes that a file takes on the disk."""
    return path.stat().st_blocks * 512


def _convert(sources: Sequence[str], pack: Path, watched: watch.Watch, timeout: float, **options: Any) -> Conversion:
    arguments = ["convert", *sources, "--dtype", "bf16", "--output", str(pack), "--overwrite", "--quiet"]
    done = watched([*_COMMAND, *arguments], timeout=timeout, **options)
    _checked(done)
    opened = wpack.open(pack)
    read = sum(size for component in opened.components for _, size, _ in opened.sources(component))
    return Conversion(pack, read, pack.stat().st_size, watched.seconds, watched.processor, watched.peak)


def _followed(
    sources: Sequence[str], pack: Path, length: int, act: Callable[[int], None], timeout: float
) -> Conversion:
    """Converts, and meanwhile acts on the file that is written, again and again."""
    done = threading.Event()
    follower = threading.Thread(target=_follow, args=(pack.parent, length, act, done), daemon=True)
    follower.start()
    try:
        return _convert(sources, pack, watch.Watch(), timeout, prepare=_without_writing)
    finally:
        done.set()
        follower.join()


def _follow(folder: Path, length: int, act: Callable[[int], None], done: threading.Event) -> None:
    while not done.wait(0.3):
        for pid in watch.tree(os.getpid())[1:]:
            for link in _links(pid):
                try:
                    # It has no name yet.
                    inside = os.readlink(link).startswith(f"{folder}/")
                    if not inside or os.stat(link).st_size < length or os.stat(link).st_nlink:
                        continue
                    file = os.open(link, os.O_RDWR)
                except FileNotFoundError:
                    continue
                try:
                    act(file)
                finally:
                    os.close(file)


def _links(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def _punch(file: int, ranges: Sequence[tuple[int, int]]) -> None:
    for offset, size in ranges:
        flags = ctypes.c_int(_KEEP_SIZE | _PUNCH_HOLE)
        if _LIBC.fallocate(ctypes.c_int(file), flags, ctypes.c_int64(offset), ctypes.c_int64(size)):
            raise OSError(ctypes.get_errno(), "the file system makes no holes in files")


def _without_writing() -> None:
    """Has the kernel answer two calls of this process as file systems do that do not have them: ``fallocate``,
    which reserves room, and ``fadvise``, which starts writing to the disk what is to be punched out."""
    fallocate, fadvise = {"x86_64": (285, 221), "aarch64": (47, 223)}[platform.machine()]
    # seccomp's program: load the number of the call; if it is one of these, EOPNOTSUPP; else allow.
    steps = [(0x20, 0, 0, 0), (0x15, 1, 0, fallocate), (0x15, 0, 1, fadvise)]
    steps += [(0x06, 0, 0, 0x00050000 | 95), (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(code)))
    no_new_privileges, set_seccomp, filtered = 38, 22, 2
    zero = ctypes.c_ulong(0)
    if _LIBC.prctl(no_new_privileges, ctypes.c_ulong(1), zero, zero, zero):
        raise OSError(ctypes.get_errno(), "prctl")
    if _LIBC.prctl(set_seccomp, ctypes.c_ulong(filtered), ctypes.byref(program), zero, zero):
        raise OSError(ctypes.get_errno(), "seccomp")


def _json(*arguments: str) -> Any:
    done = watch.Watch()([*_COMMAND, *arguments, "--json"], timeout=600)
    _checked(done)
    return json.loads(done.stdout)


def _checked(done: Any) -> None:
    if done.returncode:
        raise SystemExit(f"{' '.join(done.args)} failed:\n" + runs.tail(done.stdout + done.stderr))
