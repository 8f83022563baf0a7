"""Checkpoint files too large for memory: safetensors and what ``torch.save`` writes, a piece at a time.

Bytes are random values, or none at all: a sparse file has the length of a real one, reads as zeros and takes no
room on the disk.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16"}

# Elements of random values that are made: odd, so that where they come again they lie otherwise in a page.
_PERIOD = (1 << 23) + 9
_PIECE = 1 << 22


class Values:
    """Values that a forward pass stays finite with: norms about one, the rest small. Every tensor starts at
    another place of the same random numbers."""

    def __init__(self, dtype: torch.dtype) -> None:
        small = torch.from_numpy(numpy.random.default_rng(1).standard_normal(_PERIOD, dtype=numpy.float32)) * 0.02
        word = {torch.float32: torch.int32, torch.bfloat16: torch.int16}[dtype]
        self._small, self._norms = (each.to(dtype).view(word).numpy() for each in (small, small + 1))

    def of(self, number: int, name: str, shape: Sequence[int]) -> Iterator[memoryview]:
        """The bytes of one tensor, by pieces."""
        leaf = name.rpartition(".")[2]
        source = self._norms if leaf == "gamma" or (leaf == "weight" and len(shape) == 1) else self._small
        at, left = number * 1_000_003 % _PERIOD, _elements(shape)
        while left:
            piece = source[at : at + min(left, _PIECE)]
            yield memoryview(piece).cast("B")
            left -= len(piece)
            at = (at + len(piece)) % _PERIOD


def write_safetensors(paths: Sequence[Path], shapes: Mapping[str, Sequence[int]], dtype: torch.dtype, *, sparse: bool) -> None:
    """Writes a model as so many shards."""
    values = None if sparse else Values(dtype)
    names = list(shapes)
    for number, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = range(len(names) * number // len(paths), len(names) * (number + 1) // len(paths))
        header, size = {}, 0
        for at in part:
            end = size + _elements(shapes[names[at]]) * dtype.itemsize
            header[names[at]] = {"dtype": _NAMES[dtype], "shape": list(shapes[names[at]]), "data_offsets": [size, end]}
            size = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            if values is None:
                file.truncate(file.tell() + size)
                continue
            for at in part:
                for piece in values.of(at, names[at], shapes[names[at]]):
                    file.write(piece)


def places(path: Path) -> dict[str, tuple[Path, int, int]]:
    """File, first byte and length of each tensor of a safetensors file."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    return {name: (path, 8 + length + row["data_offsets"][0], row["data_offsets"][1] - row["data_offsets"][0]) for name, row in header.items()}


def holds(tensors: Mapping[str, torch.Tensor], shapes: Mapping[str, Sequence[int]], dtype: torch.dtype) -> bool:
    """True if tensors have the values that were written, byte for byte."""
    values = Values(dtype)
    for number, (name, shape) in enumerate(shapes.items()):
        found, at = memoryview(tensors[name].contiguous().view(torch.uint8).numpy().reshape(-1)), 0
        for piece in values.of(number, name, shape):
            # As bytes: memory views are compared one element at a time.
            if bytes(found[at : at + len(piece)]) != bytes(piece):
                return False
            at += len(piece)
    return True


def write_pth(path: Path, shapes: Mapping[str, Sequence[int]], dtype: torch.dtype) -> None:
    """Writes a model as ``torch.save`` does, checksums included, without ever holding a tensor.

    The archive is ``torch.save``'s own; the tensors in it are written into the room that it leaves for them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FakeTensorMode():
        state = {name: torch.empty(list(shape), dtype=dtype) for name, shape in shapes.items()}
    with torch.serialization.skip_data(materialize_fake_tensors=True):
        torch.save(state, path)
    reader = torch._C.PyTorchFileReader(str(path))
    records = {f"data/{number}": reader.get_record_offset(f"data/{number}") for number in range(len(shapes))}
    del reader
    values, sums = Values(dtype), {}
    with open(path, "r+b") as file:
        for number, (name, shape) in enumerate(shapes.items()):
            file.seek(records[f"data/{number}"])
            checksum = 0
            for piece in values.of(number, name, shape):
                file.write(piece)
                checksum = zlib.crc32(piece, checksum)
            sums[f"data/{number}"] = checksum
    _checksums(path, sums)


def _checksums(path: Path, sums: Mapping[str, int]) -> None:
    """Puts checksums where an archive says those of its records: in its directory, and before or behind each."""
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        directory = archive.start_dir
    with open(path, "r+b") as file:
        descriptor = os.dup(file.fileno())
        try:
            at = directory
            for entry in entries.values():
                head = os.pread(descriptor, 46, at)
                lengths = struct.unpack("<HHH", head[28:34])
                checksum = sums.get(entry.filename.partition("/")[2])
                if checksum is not None:
                    os.pwrite(descriptor, struct.pack("<I", checksum), at + 16)
                    _local_checksum(descriptor, entry, checksum)
                at += 46 + sum(lengths)
        finally:
            os.close(descriptor)


def _local_checksum(file: int, entry: zipfile.ZipInfo, checksum: int) -> None:
    local = os.pread(file, 30, entry.header_offset)
    flags, names = struct.unpack("<H", local[6:8])[0], struct.unpack("<HH", local[26:30])
    if not flags & 8:
        os.pwrite(file, struct.pack("<I", checksum), entry.header_offset + 14)
        return
    behind = entry.header_offset + 30 + sum(names) + entry.compress_size
    if os.pread(file, 4, behind) != b"PK\x07\x08":
        raise SystemExit(f"{entry.filename}: no data descriptor behind the record")
    os.pwrite(file, struct.pack("<I", checksum), behind + 4)


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
