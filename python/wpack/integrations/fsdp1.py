"""FSDP1 (``FullyShardedDataParallel``): flat shards from a pack, each rank its own range.

Source of the rule: ``torch/distributed/fsdp/_flat_param.py`` (``_init_flat_param_and_metadata``,
``_get_shard``). A unit's parameters lie one after the other in a flat parameter, with padding of 42 between and
behind them if ``use_orig_params`` is set; it is cut into equal parts, and what the last parts lack is zero. The
order and the padding are read from the flat parameter itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import Pack, WpackError
from . import _refuse
from ._config import opened

if TYPE_CHECKING:
    import torch
    from torch import nn

# What PyTorch writes between parameters: torch/distributed/fsdp/_flat_param.py, _FLAT_PARAM_PADDING_VALUE.
PADDING = 42


class FlatParameterError(WpackError):
    """A flat parameter cannot be filled: it is not sharded, or the pack's tensors are not those of the model."""


def load_into_fsdp1(
    model: nn.Module,
    pack: Pack | str | os.PathLike[str],
    *,
    component: str | None = None,
    strict: bool = True,
) -> int:
    """Fills the flat shards of a wrapped model; returns bytes copied.

    Each rank reads its own range of each unit, so that a ``replicate`` pack costs the shard and no more.
    Padding is written as PyTorch writes it. Buffers are whole on every rank.

    Args:
        model: A model wrapped by ``FullyShardedDataParallel``, before its first forward pass.
        pack: The pack, or its path (``x.wpack`` or ``x.wpack#component``).
        component: Component of the pack; not needed where there is only one.
        strict: A parameter without a tensor is an error, and so is a tensor without a place.

    Raises:
        FlatParameterError: names or shapes differ, a unit is gathered at the moment, or parameters are of
            several types in the pack.
    """
    source, name = opened(pack, component)
    shard = source.shard(rank=0, world_size=1, layout="replicate", component=name)
    copied, used = 0, set()
    for prefix, handle in _handles(model):
        done, names = _fill(prefix, handle, shard, strict)
        copied += done
        used |= names
    for full, buffer in model.named_buffers(remove_duplicate=False):
        key = _clean(full)
        if key in shard:
            used.add(key)
            buffer.data.copy_(shard.get_tensor(key))
            copied += buffer.numel() * buffer.element_size()
    if strict:
        _refuse.unexpected_names(shard.keys(), used, FlatParameterError)
    return copied


def empty_parameters(device: torch.device | str) -> Callable[[nn.Module], None]:
    """A ``param_init_fn`` for a model on the meta device: memory without values, ties kept, buffers that are
    real left alone. One function serves one model."""
    import torch

    made: dict[int, torch.nn.Parameter] = {}
    kept: list[Any] = []

    def init(module: nn.Module) -> None:
        for name, parameter in module._parameters.items():
            if parameter is None or not parameter.is_meta:
                continue
            if id(parameter) not in made:
                made[id(parameter)] = torch.nn.Parameter(
                    torch.empty_like(parameter, device=device), requires_grad=parameter.requires_grad
                )
                kept.append(parameter)  # an id is of use while its object lives
            module._parameters[name] = made[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_meta:
                module._buffers[name] = torch.zeros_like(buffer, device=device)

    return init


def shard_model(
    model: nn.Module,
    pack: Pack | str | os.PathLike[str],
    device_id: int | torch.device,
    *,
    component: str | None = None,
    param_dtype: torch.dtype | None = None,
    reduce_dtype: torch.dtype | None = None,
    buffer_dtype: torch.dtype | None = None,
    process_group: Any = None,
    sharding_strategy: Any = None,
) -> Any:
    """Wan2.2's ``shard_model`` (``wan/distributed/fsdp.py``) for a model on the meta device, filled from a pack.

    Units are the members of ``model.blocks`` and the rest; ``use_orig_params`` is off; parameters are
    ``bfloat16`` in use, reductions and buffers ``float32``, as there. No rank loads the whole model first, and
    rank 0 broadcasts nothing.
    """
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

    _refuse.quantized_model(model)
    blocks: list[Any] = [*model.get_submodule("blocks").children()]
    device = device_id
    if isinstance(device, int):
        accelerator = torch.accelerator.current_accelerator()
        device = torch.device("cpu" if accelerator is None else accelerator.type, device)
    wrapped = FullyShardedDataParallel(
        model,
        process_group=process_group,
        sharding_strategy=sharding_strategy or ShardingStrategy.FULL_SHARD,
        auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda module: any(module is b for b in blocks)),
        mixed_precision=MixedPrecision(
            param_dtype=param_dtype or torch.bfloat16,
            reduce_dtype=reduce_dtype or torch.float32,
            buffer_dtype=buffer_dtype or torch.float32,
        ),
        device_id=device_id,
        sync_module_states=False,
        param_init_fn=empty_parameters(device),
    )
    load_into_fsdp1(wrapped, pack, component=component)
    return wrapped


def _handles(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Each unit's handle, with the path of its module."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    found = False
    for path, module in model.named_modules():
        handle = getattr(module, "_handle", None) if isinstance(module, FullyShardedDataParallel) else None
        found |= isinstance(module, FullyShardedDataParallel)
        if handle is not None:
            yield _clean(path), handle
    if not found:
        raise FlatParameterError(
            f"no module of the model ({type(model).__name__}) is wrapped by FullyShardedDataParallel",
            hint="wrap it first; for fully_shard use wpack.integrations.fsdp.load_into",
        )


def _clean(path: str) -> str:
    return ".".join(part for part in path.split(".") if part not in ("_fsdp_wrapped_module", "_checkpoint_wrapped_module"))


def _fill(prefix: str, handle: Any, shard: Any, strict: bool) -> tuple[int, set[str]]:
    """Writes a unit's local shard; returns bytes copied and the names used."""
    import torch

    flat = handle.flat_param
    local = flat.data
    if handle.uses_sharded_strategy and not handle.is_sharded(flat):
        raise FlatParameterError(
            f"the unit `{prefix or 'root'}` is gathered at the moment",
            hint="load before the first forward pass, outside of summon_full_params",
        )
    size = local.numel()
    begin = size * handle.rank if handle.uses_sharded_strategy else 0
    size_of = local.element_size()
    names, at, copied, members = set(), 0, 0, iter(zip(flat._fqns, flat._shapes))
    with torch.no_grad():
        for padding, count in zip(flat._is_padding_mask, flat._numels_with_padding):
            start, stop = max(at, begin), min(at + count, begin + size)
            into = local.narrow(0, start - begin, stop - start) if start < stop else None
            if padding:
                if into is not None:
                    into.fill_(PADDING)
            else:
                fqn, shape = next(members)
                name = _known(prefix, fqn, flat, shard)
                if name is None:
                    if strict:
                        raise FlatParameterError(
                            f"the pack has no tensor `{_join(prefix, fqn)}`",
                            hint="pass strict=False, or the component that is meant",
                        )
                else:
                    names |= _all_names(prefix, fqn, flat)
                    found = tuple(shard.get_slice(name).get_shape())
                    if found != tuple(shape):
                        raise FlatParameterError(
                            f"parameter `{name}` has shape {tuple(shape)}, the pack's tensor {found}",
                            hint="convert the checkpoint of this very model",
                        )
                    if into is not None:
                        into.copy_(shard.get_tensor(name).reshape(-1).narrow(0, start - at, stop - start))
                        copied += (stop - start) * size_of
            at += count
        if at < begin + size:
            # Behind the stream's end PyTorch pads with zeros.
            local.narrow(0, max(at - begin, 0), begin + size - max(at, begin)).zero_()
    return copied, names


def _join(prefix: str, name: str) -> str:
    return _clean(f"{prefix}.{name}" if prefix else name)


def _all_names(prefix: str, fqn: str, flat: Any) -> set[str]:
    """All names of a member: its own and those of parameters that are the same object."""
    names = {_join(prefix, fqn)}
    for shared in flat._shared_param_infos:
        first = f"{shared.prim_module_name}.{shared.prim_param_name}".lstrip(".")
        if first == fqn:
            names.add(_join(prefix, f"{shared.module_name}.{shared.param_name}".lstrip(".")))
    return names


def _known(prefix: str, fqn: str, flat: Any, shard: Any) -> str | None:
    return next((name for name in sorted(_all_names(prefix, fqn, flat), key=lambda n: n != _join(prefix, fqn)) if name in shard), None)
