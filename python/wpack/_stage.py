"""Tensors through a small ring of memory, block by block: the way to a device, and the eager way to the CPU.

Reader threads of the native module fill slots of the ring and check each block's CRC-32C there. This side
owns the memory: a ring of (for CUDA: pinned) torch tensors, and the destinations, from torch's own allocator.
It issues the copies on a side stream and says when a slot may be used again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._progress import Progress
from ._torch import dtype_of, gc_paused, need
from .errors import OutputTensorError, UnknownTensorError

if TYPE_CHECKING:
    import torch

    from ._wpack import NativeShard

SLOT_BYTES = 8 << 20
"""Bytes of a slot: a block, the unit of checksums."""

SLOTS = 8
"""Slots of the ring: 64 MiB, whatever the size of the model."""

GROUP_ALIGN = 512
"""Alignment of tensors within one allocation: that of torch's own allocator."""


@dataclass
class Stats:
    """How a load went."""

    device: str
    """Where the tensors are."""
    path: str
    """``pinned ring`` or ``pageable ring``."""
    bytes: int = 0
    """Bytes of tensors."""
    ring_bytes: int = 0
    """Bytes of the ring: all the host memory that the load took besides the destinations."""
    verified: bool = False
    """True if every block's CRC-32C was checked."""
    seconds: float = 0.0
    """Time of the whole load."""
    stages: dict[str, Any] = field(default_factory=dict)
    """Bytes by the way they were read, and seconds of each stage."""


class Target:
    """Tensors to be filled, and each as plain bytes."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.bytes: list[torch.Tensor] = []


class Sink:
    """The ring and the copies out of it. The native side calls it from one thread at a time."""

    def __init__(self, device: torch.device, targets: list[torch.Tensor], slots: int) -> None:
        torch = need()
        self.device = device
        self.targets = targets
        module = getattr(torch, device.type, None)
        self.module = module if device.type != "cpu" and hasattr(module, "Stream") else None
        pinned = False
        if self.module is not None:
            try:
                self.ring = [torch.empty(SLOT_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(slots)]
                pinned = True
            except RuntimeError:
                # No page-locked memory to be had: slower, and said in the stats.
                pass
        if not pinned:
            self.ring = [torch.empty(SLOT_BYTES, dtype=torch.uint8) for _ in range(slots)]
        self.path = "pinned ring" if pinned else "pageable ring"
        self.stream: Any = None
        self.events: list[Any] = [None] * slots
        if self.module is not None:
            self.stream = self.module.Stream(device=device)
            self.events = [self.module.Event() for _ in range(slots)]

    def memory(self) -> list[tuple[int, int]]:
        """Address and length of each slot."""
        return [(slot.data_ptr(), slot.numel()) for slot in self.ring]

    def begin(self) -> None:
        """The destinations may still be in use by earlier work of the current stream."""
        if self.stream is not None:
            self.stream.wait_stream(self.module.current_stream(self.device))

    def copy(self, slot: int, parts: list[tuple[int, int, int, int]]) -> None:
        """Copies ``(target, offset there, offset in the slot, bytes)`` out of a slot, and marks its end."""
        source = self.ring[slot]
        with self._on_stream():
            for target, to, start, size in parts:
                self.targets[target][to : to + size].copy_(source[start : start + size], non_blocking=True)
        if self.stream is not None:
            self.events[slot].record(self.stream)

    def done(self, slot: int) -> bool:
        """True once the copies out of a slot have ended, so that it may be filled again."""
        return self.stream is None or bool(self.events[slot].query())

    def wait(self, slot: int) -> None:
        """Waits for the copies out of a slot."""
        if self.stream is not None:
            self.events[slot].synchronize()

    def drain(self) -> None:
        """Waits for all copies; always before the ring or a destination is let go."""
        if self.stream is not None:
            self.stream.synchronize()
            self.module.current_stream(self.device).wait_stream(self.stream)

    def _on_stream(self) -> AbstractContextManager[Any]:
        if self.stream is None:
            return nullcontext()
        context: AbstractContextManager[Any] = self.module.stream(self.stream)
        return context


def load(
    native: NativeShard,
    device: torch.device,
    *,
    out: Mapping[str, torch.Tensor] | None,
    verify: bool,
    group_bytes: int | None,
    progress: Progress | None,
) -> tuple[dict[str, torch.Tensor], Stats]:
    """All tensors of a shard on a device, and how it went."""
    with _current(device), gc_paused():
        entries = native.entries()
        if out is not None:
            entries, target = _given(entries, out)
        else:
            target = _fresh(entries, device, group_bytes)
        sink = Sink(device, target.bytes, SLOTS)
        stats = Stats(str(device), sink.path, verified=verify)
        stats.bytes = sum(part.numel() for part in target.bytes)
        stats.ring_bytes = SLOTS * SLOT_BYTES
        sink.begin()
        try:
            stats.stages = native.stage([entry[0] for entry in entries], sink, sink.memory(), verify, progress)
        finally:
            sink.drain()
        stats.seconds = float(stats.stages.get("seconds", 0.0))
        return target.tensors, stats


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


def _given(entries: list[Entry], out: Mapping[str, torch.Tensor]) -> tuple[list[Entry], Target]:
    """The caller's destinations; their names choose what is loaded."""
    torch = need()
    by_name = {name: entry for entry in entries for name in entry[1]}
    target = Target()
    kept = []
    for name, tensor in out.items():
        if name not in by_name:
            raise UnknownTensorError(f"no tensor `{name}` in the shard, but out= names it")
        entry = by_name[name]
        _, _, dtype, shape, _ = entry
        wanted = dtype_of(dtype, name)
        if list(tensor.shape) != shape or tensor.dtype != wanted or not tensor.is_contiguous():
            raise OutputTensorError(
                f"out[{name!r}] must be contiguous, {wanted}, {tuple(shape)}; "
                f"it is {tensor.dtype}, {tuple(tensor.shape)}, strides {tensor.stride()}"
            )
        target.tensors[name] = tensor
        target.bytes.append(tensor.detach().reshape(-1).view(torch.uint8))
        kept.append(entry)
    return kept, target
