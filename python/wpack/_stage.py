"""Tensors through a small ring of memory, block by block: the way to a device, and the eager way to the CPU.

Reader threads of the native module fill slots of the ring and check each block's CRC-32C there. This side
owns the memory: a ring of (for CUDA: pinned) torch tensors, and the destinations, from torch's own allocator.
It issues the copies on a side stream and says when a slot may be used again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._progress import Progress
from ._torch import dtype_of, dtypes, from_dlpack, gc_paused, need
from .errors import OutputTensorError, UnknownTensorError

if TYPE_CHECKING:
    import torch

    from ._wpack import NativeShard

BUDGET = 128 << 20
"""The most bytes of the ring, whatever the size of the model."""

GROUP_ALIGN = 512
"""Alignment of tensors within one allocation: that of torch's own allocator."""


@dataclass(frozen=True)
class Stats:
    """How a load went."""

    device: str
    """Where the tensors are."""
    path: str
    """The way the bytes took: how most were read (``cached``, ``direct``, ``buffered``), and through what
    (``pinned ring``, ``pageable ring``, straight to ``memory``)."""
    bytes: int
    """Bytes of tensors."""
    ring_bytes: int
    """Bytes of the ring: all the host memory that a device load takes."""
    verified_bytes: int
    """Bytes whose CRC-32C was checked: whole blocks, also where less of them was wanted."""
    seconds: float
    """Time of the whole load."""
    stages: dict[str, Any] = field(repr=False)
    """Reads and bytes by path, seconds of each stage, and why a faster path was not taken."""


class Target:
    """Tensors to be filled, and each as plain bytes."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.bytes: list[torch.Tensor] = []


class Sink:
    """The ring and the copies out of it.

    The native side calls it from one thread, which is not the one that made it: streams and devices that
    are current in torch are so for one thread, so that everything here names its own.
    """

    ring: list[torch.Tensor]

    def __init__(self, device: torch.device, targets: list[torch.Tensor]) -> None:
        torch = need()
        self.device = device
        self.targets = targets
        self.ring = []
        self.events: list[Any] = []
        self.pinned = True
        self.module = None
        self.stream: Any = None
        self.consumer: Any = None
        if device.type != "cpu":
            module = getattr(torch, device.type, None)
            if module is not None and hasattr(module, "Stream") and hasattr(module, "current_stream"):
                self.module = module
                self.stream = module.Stream(device=device)
                self.consumer = module.current_stream(device)

    @property
    def path(self) -> str:
        """What the ring is made of."""
        return "pinned ring" if self.stream is not None and self.pinned else "pageable ring"

    def allocate(self, size: int, align: int) -> tuple[int, int]:
        """Makes a slot; its number and the address of its first byte, a multiple of ``align``."""
        torch = need()
        with self._on_stream():
            slot = None
            if self.stream is not None and self.pinned:
                try:
                    slot = torch.empty(size, dtype=torch.uint8, pin_memory=True)
                except RuntimeError:
                    # No page-locked memory to be had: slower, and the stats say so.
                    self.pinned = False
            if slot is None or slot.data_ptr() % align:
                slot = torch.empty(size + align, dtype=torch.uint8, pin_memory=slot is not None)
                skip = -slot.data_ptr() % align
                slot = slot[skip : skip + size]
            self.ring.append(slot)
            self.events.append(None if self.module is None else self.module.Event())
        return len(self.ring) - 1, slot.data_ptr()

    def begin(self) -> None:
        """The destinations' memory may still be in use by earlier work of the program's stream."""
        if self.stream is not None:
            self.stream.wait_stream(self.consumer)

    def copy(self, slot: int, parts: list[tuple[int, int, int, int]]) -> None:
        """Copies ``(target, offset there, offset in the slot, bytes)`` out of a slot, and marks the end."""
        source = self.ring[slot]
        with self._on_stream():
            for target, to, start, size in parts:
                self.targets[target][to : to + size].copy_(source[start : start + size], non_blocking=True)
            if self.stream is not None:
                self.events[slot].record(self.stream)

    def done(self, slot: int) -> bool:
        """True once the copies out of a slot have ended, so that it may be filled again."""
        return self.stream is None or bool(self.events[slot].query())

    def finish(self) -> None:
        """The program's next work on the destinations waits for the copies."""
        if self.stream is not None:
            self.consumer.wait_stream(self.stream)

    def drain(self) -> None:
        """Waits for all copies; always before the ring or a destination is let go."""
        if self.stream is not None:
            self.stream.synchronize()

    def _on_stream(self) -> AbstractContextManager[Any]:
        if self.stream is None:
            return nullcontext()
        # Makes the stream's device the current one, too.
        context: AbstractContextManager[Any] = self.module.stream(self.stream)  # type: ignore[union-attr]
        return context


def load(
    native: NativeShard,
    device: torch.device,
    *,
    out: Mapping[str, torch.Tensor] | None,
    verify: bool,
    group_bytes: int | None,
    progress: Progress | None,
    budget: int = BUDGET,
    ring: bool = False,
) -> tuple[dict[str, torch.Tensor], Stats]:
    """All tensors of a shard on a device, and how it went. ``ring`` takes the ring on the CPU too, where
    bytes are otherwise read to their place."""
    with _current(device), gc_paused():
        entries = native.entries()
        if out is not None:
            entries, target = _given(entries, out, device)
        else:
            target = _fresh(entries, device, group_bytes)
        wanted = [entry[0] for entry in entries]
        if device.type == "cpu" and not ring:
            memory = [(part.data_ptr(), part.numel()) for part in target.bytes]
            stages = native.read(wanted, memory, verify, progress)
            path = "memory"
        else:
            sink = Sink(device, target.bytes)
            stages = native.stage(wanted, sink, budget, verify, progress)
            path = sink.path
        if stages is None:
            stages = _through_the_map(native, entries, target, verify, progress)
            path = "mapping"
    return target.tensors, Stats(
        device=str(device),
        path=f"{stages['path']} reads, {path}",
        bytes=int(stages["copied_bytes"]),
        ring_bytes=int(stages["ring_bytes"]),
        verified_bytes=int(stages["checked_bytes"]),
        seconds=float(stages["seconds"]),
        stages=stages,
    )


def _through_the_map(
    native: NativeShard, entries: list[Entry], target: Target, verify: bool, progress: Progress | None
) -> dict[str, Any]:
    """Slices of another mesh or layout: each is a view of the mapping, or gathered, and copied from there.

    Their bytes are parts of blocks, so the blocks are checked first, each once.
    """
    torch = need()
    start = time.monotonic()
    checked = native.check([entry[0] for entry in entries], progress) if verify else None
    checked_bytes, _, check_seconds = checked or (0, 0, 0.0)
    total = sum(entry[4] for entry in entries)
    done = 0
    for entry, part in zip(entries, target.bytes, strict=True):
        tensor = native.tensor(entry[1][0], from_dlpack(), dtypes())
        part.copy_(tensor.reshape(-1).view(torch.uint8))
        done += entry[4]
        if progress is not None:
            progress("load", done, total)
    seconds = time.monotonic() - start
    return {
        "path": "mapped",
        "copied_bytes": total,
        "ring_bytes": 0,
        "checked_bytes": checked_bytes,
        "check_seconds": check_seconds,
        "seconds": seconds,
    }


def _current(device: torch.device) -> AbstractContextManager[Any]:
    """Makes the device the current one, so that nothing is ever allocated on another."""
    torch = need()
    module = getattr(torch, device.type, None)
    if device.type == "cpu" or not hasattr(module, "device"):
        return nullcontext()
    context: AbstractContextManager[Any] = module.device(device)  # type: ignore[union-attr]
    return context


Entry = tuple[int, list[str], str, list[int], int]
"""Position in the shard, names, element type, shape, bytes."""


def _fresh(entries: list[Entry], device: torch.device, group_bytes: int | None) -> Target:
    """New destinations: one storage for each tensor, or groups in one allocation."""
    torch = need()
    target = Target()
    for buffers in _groups(entries, group_bytes):
        total = sum(_padded(entry[4]) for entry in buffers) if len(buffers) > 1 else buffers[0][4]
        base = torch.empty(total, dtype=torch.uint8, device=device)
        at = 0
        for _, names, dtype, shape, size in buffers:
            part = base[at : at + size] if len(buffers) > 1 else base
            at += _padded(size)
            tensor = part.view(dtype_of(dtype, names[0])).view(shape)
            target.bytes.append(part)
            target.tensors[names[0]] = tensor
            for name in names[1:]:
                target.tensors[name] = tensor.detach()
    return target


def _padded(size: int) -> int:
    return -(-size // GROUP_ALIGN) * GROUP_ALIGN


def _groups(entries: list[Entry], group_bytes: int | None) -> Iterator[list[Entry]]:
    group: list[Entry] = []
    filled = 0
    for entry in entries:
        size = _padded(entry[4])
        if group and (group_bytes is None or filled + size > group_bytes):
            yield group
            group, filled = [], 0
        group.append(entry)
        filled += size
    if group:
        yield group


def _given(
    entries: list[Entry], out: Mapping[str, torch.Tensor], device: torch.device
) -> tuple[list[Entry], Target]:
    """The caller's destinations; their names choose what is loaded."""
    torch = need()
    by_name = {name: entry for entry in entries for name in entry[1]}
    target = Target()
    kept = []
    taken: set[int] = set()
    for name, tensor in out.items():
        if name not in by_name:
            raise UnknownTensorError(f"no tensor `{name}` in the shard, but out= names it")
        entry = by_name[name]
        _, _, dtype, shape, _ = entry
        wanted = dtype_of(dtype, name)
        fits = list(tensor.shape) == shape and tensor.dtype == wanted and tensor.device == device
        if not fits or not tensor.is_contiguous():
            raise OutputTensorError(
                f"out[{name!r}] must be contiguous, {wanted}, {tuple(shape)}, on {device}; "
                f"it is {tensor.dtype}, {tuple(tensor.shape)}, strides {tensor.stride()}, on {tensor.device}"
            )
        if entry[0] in taken:
            raise OutputTensorError(f"out names {name!r} and a tie of it; give one of them")
        taken.add(entry[0])
        target.tensors[name] = tensor
        target.bytes.append(tensor.detach().reshape(-1).view(torch.uint8))
        kept.append(entry)
    return kept, target
