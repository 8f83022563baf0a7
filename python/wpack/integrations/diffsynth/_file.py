"""A component of a pack with the interface that DiffSynth expects of an opened checkpoint file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import _device
from .._packs import open_reference

if TYPE_CHECKING:
    import torch


class PackFile:
    """Tensors under the names of the files that the component was made from: those are what DiffSynth
    recognises models by, and what its converters rename."""

    def __init__(self, reference: str, device: str | torch.device = "cpu") -> None:
        pack, component = open_reference(reference)
        self.device = _device.resolve(device)
        self.digest = pack.digest
        self._names = dict(pack.source_names(component))
        self._shard = pack.shard(rank=0, world_size=1, layout="replicate", component=component)

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

        like = self._shard.get_tensor(ours)
        out = {ours: torch.empty(like.shape, dtype=like.dtype, device=self.device)}
        return self._shard.state_dict(self.device, out=out, progress=False)[ours]

    def get_slice(self, name: str) -> object:
        """The tensor's shape and parts on demand."""
        return self._shard.get_slice(self._names[name])

    def metadata(self) -> dict[str, str]:
        """As safetensors has it; nothing here."""
        return {}
