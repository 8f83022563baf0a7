"""Which memory is a pack's, and whether it is still as the file has it."""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Bits of an entry of /proc/self/pagemap: the page is in memory, in swap, and of a file or shared.
_PRESENT, _SWAPPED, _FILE = 1 << 63, 1 << 62, 1 << 61


@dataclass(frozen=True)
class Region:
    """One mapping of a file into this process."""

    start: int
    """First address."""
    stop: int
    """Address behind the last byte."""
    path: str
    """The file."""
    offset: int
    """Byte of the file at ``start``."""


class MappedPacks:
    """The packs that this process has mapped, as the kernel lists them at this moment.

    A tensor's address is looked up in the kernel's own list, not in one kept here: memory that was freed
    and given to another tensor is never taken for a pack's.
    """

    def __init__(self) -> None:
        self._regions = _regions()
        self._starts = [region.start for region in self._regions]
        self._digests: dict[str, str | None] = {}

    def region(self, tensor: torch.Tensor) -> Region | None:
        """The mapping that holds all of a tensor's bytes; ``None`` for other memory."""
        if tensor.device.type != "cpu" or tensor.numel() == 0 or not tensor.is_contiguous():
            return None
        start = tensor.data_ptr()
        at = bisect_right(self._starts, start) - 1
        if at < 0:
            return None
        found = self._regions[at]
        return found if start + tensor.numel() * tensor.element_size() <= found.stop else None

    def origin(self, tensor: torch.Tensor) -> tuple[str, int] | None:
        """The pack's root digest and the byte of the file that a tensor starts at; ``None`` where the
        memory is no pack's, or the file at that path is no longer the one that is mapped."""
        region = self.region(tensor)
        if region is None:
            return None
        digest = self._digest(region.path)
        return None if digest is None else (digest, region.offset + tensor.data_ptr() - region.start)

    def _digest(self, path: str) -> str | None:
        if path not in self._digests:
            from .. import WpackError
            from .. import open as open_pack

            try:
                self._digests[path] = open_pack(path).digest
            except (WpackError, OSError):
                self._digests[path] = None
        return self._digests[path]


def _regions() -> list[Region]:
    identities = _Identities()
    found = [
        Region(start, stop, path, offset)
        for start, stop, offset, identity, path in _mappings()
        if path.endswith(".wpack") and identities.same(path, identity)
    ]
    return _merge(sorted(found, key=lambda region: region.start))


def _mappings() -> list[tuple[int, int, int, tuple[str, str], str]]:
    """The kernel's list: first address, address behind the last byte, byte of the file, device and inode,
    and path, which ends in " (deleted)" where the file has lost that name."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6:
                start, stop = (int(part, 16) for part in fields[0].split("-"))
                found.append((start, stop, int(fields[2], 16), (fields[3], fields[4]), fields[5]))
    return found


class _Identities:
    """Whether a mapping is of the file that has its path now.

    Device and inode in the kernel's list need not be those of ``stat``: overlayfs and btrfs report others
    there. So they are compared with those of the list itself, for a page that is mapped from the path now.
    """

    def __init__(self) -> None:
        self._now: dict[str, tuple[str, str] | None] = {}

    def same(self, path: str, identity: tuple[str, str]) -> bool:
        if path not in self._now:
            self._now[path] = _identity(path)
        return self._now[path] == identity


def _identity(path: str) -> tuple[str, str] | None:
    """Device and inode as the kernel lists them for a mapping of the file at ``path``."""
    import torch

    try:
        with open(path, "rb") as file:
            probe = mmap.mmap(file.fileno(), mmap.PAGESIZE, access=mmap.ACCESS_COPY)
    except (OSError, ValueError):
        return None
    view = torch.frombuffer(probe, dtype=torch.uint8)
    address = view.data_ptr()
    for start, stop, _, identity, listed in _mappings():
        if start <= address < stop:
            return identity if listed == path else None
    return None


def _merge(regions: list[Region]) -> list[Region]:
    """Neighbours that continue each other as one: the kernel splits a mapping when part of it changes."""
    merged: list[Region] = []
    for region in regions:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.stop == region.start
            and last.path == region.path
            and last.offset + (last.stop - last.start) == region.offset
        ):
            merged[-1] = Region(last.start, region.stop, last.path, last.offset)
        else:
            merged.append(region)
    return merged


def unwritten(tensor: torch.Tensor) -> bool:
    """True if no page of a mapped tensor was written to: each is either not yet in memory or still the
    file's own. A page shared with a neighbour that was written counts as written."""
    page = mmap.PAGESIZE
    first = tensor.data_ptr() // page
    last = (tensor.data_ptr() + tensor.numel() * tensor.element_size() - 1) // page
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        at, stop = first, last + 1
        while at < stop:
            count = min(stop - at, 1 << 15)
            data = os.pread(pagemap.fileno(), 8 * count, 8 * at)
            if len(data) != 8 * count:
                return False
            for (entry,) in struct.iter_unpack("<Q", data):
                if entry & _SWAPPED or (entry & _PRESENT and not entry & _FILE):
                    return False
            at += count
    return True
