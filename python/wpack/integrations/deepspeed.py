"""DeepSpeed: ZeRO-3 partitions from a pack, each rank its own range.

Source of the formula: ``deepspeed/runtime/zero/partition_parameters.py`` (``Init._partition_param``):
with W ranks and n elements, rank r holds the row-major elements ``[p*r, min(n, p*r + p))``, p = ceil(n/W).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .. import WpackError
from ._pages import MappedPacks

if TYPE_CHECKING:
    import torch
    from torch import nn


class UnsupportedPartitionError(WpackError):
    """A parameter is partitioned in a way that this adapter does not cover."""


def load_into_zero3(model: nn.Module, tensors: Mapping[str, torch.Tensor], strict: bool = True) -> int:
    """Fills the partitions of a model made under ``deepspeed.zero.Init``; returns bytes copied.

    Each rank reads only its own range of each tensor, so that mapped tensors cost no more than the
    partition. Nothing is gathered or broadcast, and no rank holds a full parameter. Buffers are whole on
    every rank and are copied.

    Args:
        model: A model whose parameters are partitioned.
        tensors: Full tensors by name, as :meth:`wpack.RankShard.state_dict` of a ``replicate`` pack gives them.
        strict: A parameter without a tensor is an error, and so is a tensor without a place.

    Raises:
        UnsupportedPartitionError: secondary partitions (``zero_hpz_partition_size``), experts or NVMe offload.
        KeyError: names differ and ``strict`` is set.
    """
    copied, used = 0, set()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name not in tensors:
            if strict:
                raise KeyError(f"missing: the pack has no tensor `{name}`")
            continue
        used.add(name)
        copied += fill_partition(name, parameter, tensors[name])
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if name in tensors:
            used.add(name)
            buffer.data.copy_(tensors[name])
            copied += buffer.numel() * buffer.element_size()
    unexpected = sorted(set(tensors) - used)
    if strict and unexpected:
        raise KeyError(f"unexpected: the model has no place for {', '.join(unexpected[:5])}")
    return copied


def fill_partition(name: str, parameter: Any, tensor: torch.Tensor) -> int:
    """Copies this rank's range of ``tensor`` into its partition of ``parameter``; returns bytes copied."""
    import torch.distributed as dist

    if not hasattr(parameter, "ds_tensor"):
        parameter.data.copy_(tensor)
        return int(parameter.numel() * parameter.element_size())
    if getattr(parameter, "ds_secondary_tensor", None) is not None:
        raise UnsupportedPartitionError(
            f"parameter `{name}` has a secondary partition", hint="unset zero_hpz_partition_size"
        )
    if tuple(parameter.ds_shape) != tuple(tensor.shape):
        raise UnsupportedPartitionError(
            f"parameter `{name}` has shape {tuple(parameter.ds_shape)}, the tensor {tuple(tensor.shape)}",
            hint="convert the checkpoint of this very model",
        )
    part = parameter.ds_tensor
    if part.numel() == 0 and tensor.numel() > 0:
        raise UnsupportedPartitionError(f"the partition of `{name}` is not in memory", hint="turn NVMe offload off")
    size = part.ds_numel
    start = size * dist.get_rank(parameter.ds_process_group)
    count = max(0, min(tensor.numel() - start, size))
    if count:
        part.data.narrow(0, 0, count).copy_(tensor.reshape(-1).narrow(0, start, count))
    return int(count * part.element_size())


def zero3_loader(original: Callable[..., Any]) -> Callable[..., Any]:
    """A replacement of transformers' ``_load_state_dict_into_zero3_model``.

    Its own way gathers each layer on every rank, lets rank 0 fill it and partitions it again. Where all
    tensors are views of packs, which every rank has, each rank fills its own partition instead.
    """

    def load(model_to_load: Any, state_dict: Any, load_config: Any = None) -> Any:
        known = set(model_to_load.state_dict())
        plain = load_config is None and known.issuperset(state_dict)
        packs = MappedPacks()
        if not (plain and all(_from_pack(packs, tensor) for tensor in state_dict.values())) or not _same_on_all_ranks(
            packs, state_dict
        ):
            return original(model_to_load, state_dict, *(() if load_config is None else (load_config,)))
        load_into_zero3(model_to_load, state_dict, strict=False)
        for name, tensor in [*model_to_load.named_parameters(), *model_to_load.named_buffers()]:
            if name in state_dict:
                tensor._is_hf_initialized = True
        return [], known - set(state_dict)

    return load


def _from_pack(packs: MappedPacks, tensor: torch.Tensor) -> bool:
    return tensor.numel() == 0 or packs.origin(tensor) is not None


def _same_on_all_ranks(packs: MappedPacks, tensors: Mapping[str, torch.Tensor]) -> bool:
    from ._frozen import _gather

    mine = {name: packs.origin(tensor) for name, tensor in tensors.items() if tensor.numel()}
    return all(other == mine for other in _gather(mine, None))
