"""A component of a pack with the interface that DiffSynth expects of an opened checkpoint file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from .._packs import open_reference
from .._refuse import QuantizedModelError
from ._devices import own

if TYPE_CHECKING:
    import torch


class PackFile:
    """Tensors under the names of the files that the component was made from: those are what DiffSynth
    recognises models by, and what its converters rename."""

    def __init__(self, reference: str, device: Any = "cpu") -> None:
        import torch

        pack, component = open_reference(reference)
        self.reference = reference
        self.device = torch.device("cpu" if device is None else own(device))
        self.digest = pack.digest
        self._metadata = pack.metadata(component)
        self._sources = [name for name, _, _ in pack.sources(component)]
        self._names = dict(pack.source_names(component))
        self._shard = pack.shard(rank=0, world_size=1, layout="replicate", component=component)
        self._told = False
        self._fetched = False

    def keys(self) -> list[str]:
        """Names in the checkpoint files."""
        return list(self._names)

    def shapes(self) -> dict[str, list[int]]:
        """Shape of each tensor; from the index, no tensor is read."""
        return {source: self._shard.get_slice(name).get_shape() for source, name in self._names.items()}

    def get_tensor(self, name: str) -> torch.Tensor:
        """One tensor: a view of the mapping on the CPU, else a copy on the device."""
        ours = self._names[name]
        if self.device.type == "cpu":
            return self._shard.get_tensor(ours)
        import torch

        self._read_once()
        like = self._shard.get_tensor(ours)
        out = {ours: torch.empty(like.shape, dtype=like.dtype, device=self.device)}
        return self._shard.state_dict(self.device, out=out, progress=False)[ours]

    def get_tensor_as(self, name: str, dtype: torch.dtype | None) -> torch.Tensor:
        """One tensor in the type that the program asks for. Another type than the pack's makes a private
        copy in each process; that is said once."""
        tensor = self.get_tensor(name)
        if dtype is None or tensor.dtype == dtype:
            return tensor
        if self.device.type == "cpu" and not self._told and tensor.numel() > 1:
            self._told = True
            sys.stderr.write(
                f"wpack: {self.reference} holds {tensor.dtype}, the program wants {dtype}: each process makes a private "
                f"copy. hint: convert with --dtype {str(dtype).removeprefix('torch.')}\n"
            )
        return tensor.to(dtype)

    def _read_once(self) -> None:
        """Before the first copy to a device, one of the processes of this node reads the file and the others
        wait for it: each byte comes from storage once. Not where it would not stay in memory."""
        if self._fetched:
            return
        self._fetched = True
        if int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1"))) < 2:
            return
        if self._shard.explain().mapped_bytes < _available() // 2:
            self._shard.prefetch(node=True, progress=False)

    def get_slice(self, name: str) -> object:
        """The tensor's shape and parts on demand."""
        return self._shard.get_slice(self._names[name])

    def metadata(self) -> dict[str, str]:
        """Text metadata of the checkpoint file. DiffSynth asks for it where weights were quantised before.

        Raises:
            QuantizedModelError: there were several files, whose metadata a pack does not keep apart.
        """
        files = [name for name in self._sources if name.endswith(".safetensors")]
        if len(files) > 1:
            raise QuantizedModelError(
                f"{self.reference} was made from {files[0]} and others, {len(files)} files: a model that was quantised "
                "before needs the metadata of each",
                hint="load this model from its own files, or save it as one file before converting",
            )
        return self._metadata

    def __enter__(self) -> PackFile:
        return self

    def __exit__(self, *error: object) -> None:
        """Tensors live on: they hold the mapping themselves."""


def _available() -> int:
    """Bytes of memory that the machine has to give; 0 where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
