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
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) < 6 or not fields[5].endswith(".wpack"):
                continue
            device, inode = fields[3], int(fields[4])
            if not _same_file(fields[5], device, inode):
                continue
            start, stop = (int(part, 16) for part in fields[0].split("-"))
            found.append(Region(start, stop, fields[5], int(fields[2], 16)))
    return _merge(sorted(found, key=lambda region: region.start))


def _same_file(path: str, device: str, inode: int) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    major, minor = (int(part, 16) for part in device.split(":"))
    return status.st_ino == inode and (os.major(status.st_dev), os.minor(status.st_dev)) == (major, minor)


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
