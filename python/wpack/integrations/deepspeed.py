"""DeepSpeed: ZeRO-3 partitions from a pack, each rank its own range; masters of ZeRO-1 and ZeRO-2.

Source of the formula: ``deepspeed/runtime/zero/partition_parameters.py`` (``Init._partition_param``):
with W ranks and n elements, rank r holds the row-major elements ``[p*r, min(n, p*r + p))``, p = ceil(n/W).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Union

from .. import Pack, RankShard, WpackError
from . import _refuse
from ._config import opened
from ._frozen import GUARD
from ._pages import MappedPacks
from ._refuse import UnsupportedPartitionError

if TYPE_CHECKING:
    import torch
    from torch import nn

Source = Union[Pack, str, "os.PathLike[str]", Mapping[str, "torch.Tensor"]]

__all__ = [
    "ModelMismatchError",
    "UnsupportedPartitionError",
    "check_config",
    "fill_partition",
    "load_into_zero3",
    "load_masters",
    "partition_from_pack",
    "share_frozen_weights",
    "zero3_loader",
]


class ModelMismatchError(WpackError, KeyError):
    """The pack's tensors are not those of the model."""

    __str__ = WpackError.__str__


def share_frozen_weights() -> None:
    """Keeps frozen weights of packs out of the first broadcast of DDP and DeepSpeed, from now on.

    Only what is proven equal on all ranks is left out: the same place of a pack of the same digest, and no page
    written. Call it before the model is wrapped; calling it twice is calling it once.
    """
    GUARD.install()


def check_config(config: Mapping[str, Any]) -> None:
    """Refuses what no partition is loaded for: secondary partitions, NVMe offload, quantised weights.

    Raises:
        UnsupportedPartitionError: the configuration asks for one of them.
    """
    zero = config.get("zero_optimization") or {}
    if int(zero.get("zero_hpz_partition_size", 1) or 1) > 1:
        raise UnsupportedPartitionError(
            f"zero_hpz_partition_size is {zero['zero_hpz_partition_size']}: parameters get a secondary partition",
            hint="unset zero_hpz_partition_size",
        )
    if zero.get("zero_quantized_nontrainable_weights"):
        raise UnsupportedPartitionError(
            "zero_quantized_nontrainable_weights is set: partitions hold quantised weights",
            hint="unset zero_quantized_nontrainable_weights",
        )
    offload = zero.get("offload_param") or {}
    if str(offload.get("device", "none")) == "nvme":
        raise UnsupportedPartitionError(
            "offload_param is on nvme: DeepSpeed writes its swap files itself and starts with an empty folder",
            hint='set offload_param to {"device": "cpu"}',
        )


def load_into_zero3(
    model: nn.Module, source: Source, strict: bool = True, *, component: str | None = None
) -> int:
    """Fills the partitions of a model made under ``deepspeed.zero.Init``; returns bytes copied.

    Each rank reads only its own range of each tensor. Nothing is gathered or broadcast, and no rank holds a
    full parameter. Buffers, and parameters that DeepSpeed does not partition, are whole on every rank. Call
    it before ``deepspeed.initialize``, which makes the optimizer's fp32 copies.

    Args:
        model: A model whose parameters are partitioned.
        source: A ``zero3`` pack of this number of ranks, or any other pack, or its path; or full tensors by
            name, as :meth:`wpack.RankShard.state_dict` of a ``replicate`` pack gives them.
        strict: A parameter without a tensor is an error, and so is a tensor without a place.
        component: Component of the pack; not needed where there is only one.

    Raises:
        UnsupportedPartitionError: secondary partitions (``zero_hpz_partition_size``), experts, NVMe offload or
            quantised partitions; a parameter that is gathered; another shape than the tensor's.
        ModelMismatchError: names differ and ``strict`` is set.
    """
    _refuse.quantized_model(model)
    reader = _reader(source, component)
    copied, used = 0, set()
    for names, parameter in _groups(model.named_parameters(remove_duplicate=False)):
        given = [name for name in names if name in reader]
        if not given:
            if strict:
                raise ModelMismatchError(
                    f"the pack has no tensor `{names[0]}`", hint="pass strict=False, or the component that is meant"
                )
            continue
        used.update(given)
        # Where there are several names of one parameter, the last counts, as when torch copies in turn.
        copied += reader.fill(given[-1], parameter)
    for names, buffer in _groups(model.named_buffers(remove_duplicate=False)):
        for name in names:
            if name in reader:
                used.add(name)
                buffer.data.copy_(reader.full(name))
                copied += buffer.numel() * buffer.element_size()
    if strict:
        _refuse.unexpected_names(reader.names(), used, ModelMismatchError)
    return copied


def fill_partition(name: str, parameter: Any, tensor: torch.Tensor) -> int:
    """Copies this rank's range of the full ``tensor`` into its partition of ``parameter``; returns bytes copied."""
    if not hasattr(parameter, "ds_tensor"):
        parameter.data.copy_(tensor)
        return int(parameter.numel() * parameter.element_size())
    _check(name, parameter, tuple(tensor.shape))
    start, count = _range(parameter)
    return _copy(parameter, tensor.reshape(-1).narrow(0, start, count) if count else None)


def partition_from_pack(
    model: nn.Module,
    pack: Pack | str | os.PathLike[str],
    config: Mapping[str, Any] | str | os.PathLike[str],
    *,
    component: str | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """Partitions a model whose parameters are on the meta device; the partitions are slices of the pack.

    As ``deepspeed.zero.Init``, without its cost: no module is ever made in full, and nothing is broadcast.
    Where the partitions stay on the CPU (``offload_param``, or no accelerator) and the pack holds the type that
    is asked for, they are views of the mapping, shared with other processes until DeepSpeed writes to them:
    frozen ones stay so. Buffers keep their own types, which ``zero.Init`` as a context does not do.

    Args:
        model: The model, made under ``accelerate.init_empty_weights()``: its buffers are real.
        pack: The pack, or its path (``x.wpack`` or ``x.wpack#component``).
        config: DeepSpeed's configuration, or its file.
        component: Component of the pack; not needed where there is only one.
        dtype: Type of floating parameters; what the configuration enables (``bf16``, ``fp16``) if not given.

    Returns:
        The model.

    Raises:
        UnsupportedPartitionError: see :func:`check_config`; or a parameter is already partitioned or real.
        ModelMismatchError: a parameter has no tensor, or one of another shape.
    """
    import deepspeed
    import torch

    settings = _settings(config)
    check_config(settings)
    _refuse.quantized_model(model)
    opened_pack, component = opened(pack, component)
    factory = deepspeed.zero.Init(config_dict_or_path=settings, dtype=dtype)
    rank, size = factory.rank, factory.dp_world_size
    whole = opened_pack.shard(rank=0, world_size=1, layout="replicate", component=component)
    slices = opened_pack.shard(rank=rank, world_size=size, layout="zero3", component=component).state_dict()
    used: set[str] = set()
    for names, parameter in list(_groups(model.named_parameters(remove_duplicate=False))):
        given = [name for name in names if name in whole]
        if not given:
            raise ModelMismatchError(f"the pack has no tensor `{names[0]}`", hint="name the component that is meant")
        used.update(given)
        if not parameter.is_meta or hasattr(parameter, "ds_tensor"):
            raise UnsupportedPartitionError(
                f"parameter `{names[0]}` is not on the meta device",
                hint="build the model under accelerate.init_empty_weights()",
            )
        shape = tuple(whole.get_slice(given[-1]).get_shape())
        if shape != tuple(parameter.shape):
            raise ModelMismatchError(
                f"parameter `{names[0]}` has shape {tuple(parameter.shape)}, the pack's tensor {shape}",
                hint="convert the checkpoint of this very model",
            )
        made = _partition(factory, parameter, _padded(slices[given[-1]], parameter.numel(), rank, size))
        for name in names:
            owner, _, leaf = name.rpartition(".")
            model.get_submodule(owner)._parameters[leaf] = made
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name in whole:
                used.add(name)
                buffer.copy_(whole.get_tensor(name))
    _refuse.unexpected_names(
        whole.keys(), used | _names_of_buffers(model), ModelMismatchError, hint="name the component that is meant"
    )
    return model


def load_masters(optimizer: Any, pack: Pack | str | os.PathLike[str], *, component: str | None = None) -> int:
    """Fills the fp32 masters of ZeRO-1 and ZeRO-2 from a pack that carries them; returns bytes copied.

    The pack was made with layout ``zero1`` or ``zero2`` and masters, for this number of ranks. A master belongs
    to the optimizer group whose low-precision weights are its own, rounded: that is checked for every element.

    Args:
        optimizer: What ``deepspeed.initialize`` returned, or its engine.
        pack: The pack, or its path.
        component: Component of the pack; not needed where there is only one.

    Raises:
        UnsupportedPartitionError: the pack carries no masters or those of other groups; the optimizer keeps none.
    """
    import torch
    import torch.distributed as dist

    optimizer = getattr(optimizer, "optimizer", optimizer)
    groups = getattr(optimizer, "single_partition_of_fp32_groups", None)
    weights = getattr(optimizer, "parallel_partitioned_bit16_groups", None)
    if groups is None or weights is None:
        raise UnsupportedPartitionError(
            f"the optimizer ({type(optimizer).__name__}) keeps no masters of ZeRO-1 or ZeRO-2",
            hint="pass what deepspeed.initialize returned; for ZeRO-3 use load_into_zero3 before it",
        )
    source, component = opened(pack, component)
    copied = 0
    left: dict[tuple[int, int], list[torch.Tensor]] = {}
    for at, master in enumerate(groups):
        group = optimizer.real_dp_process_group[at]
        place = dist.get_rank(group), dist.get_world_size(group)
        if place not in left:
            shard = source.shard(*place, component=component)
            left[place] = [shard.get_tensor(name) for name in shard.keys() if name.endswith("@master")]
        low = weights[at][place[0]].detach()
        fits = [
            one for one in left[place] if one.numel() == master.numel() and torch.equal(one.to(low.dtype), low.cpu())
        ]
        if not fits:
            raise UnsupportedPartitionError(
                f"{source.path} has no masters for optimizer group {at} of {master.numel()} elements on rank "
                f"{place[0]} of {place[1]}: it carries {[one.numel() for one in left[place]] or 'none'}",
                hint="convert with zero.master and the groups and settings of this optimizer",
            )
        master.data.copy_(fits[0].reshape(master.shape))
        copied += master.numel() * master.element_size()
        left[place] = [one for one in left[place] if one is not fits[0]]
    return copied


def zero3_loader(original: Callable[..., Any]) -> Callable[..., Any]:
    """A replacement of transformers' ``_load_state_dict_into_zero3_model``.

    Its own way gathers each layer on every rank, lets rank 0 fill it and partitions it again. Where all
    tensors are views of packs, which every rank has, each rank fills its own partition instead. Where the
    checkpoint's tensors must be merged or renamed first, its own way is taken.
    """

    def load(model_to_load: Any, state_dict: Any, load_config: Any = None) -> Any:
        known = set(model_to_load.state_dict())
        named = _prefixed(state_dict, known, getattr(model_to_load, "base_model_prefix", None))
        plain = not getattr(load_config, "weight_mapping", None) and known.issuperset(named)
        packs = MappedPacks()
        mine = plain and all(_from_pack(packs, tensor) for tensor in named.values())
        if not _same_on_all_ranks(packs, named if mine else None):
            return original(model_to_load, state_dict, *(() if load_config is None else (load_config,)))
        load_into_zero3(model_to_load, named, strict=False)
        for name, tensor in [*model_to_load.named_parameters(), *model_to_load.named_buffers()]:
            if name in named:
                tensor._is_hf_initialized = True
        return [], known - set(named)

    return load


def _prefixed(state: Mapping[str, torch.Tensor], known: set[str], prefix: str | None) -> dict[str, torch.Tensor]:
    """As transformers has it: a checkpoint of the base model fits a model with a head."""
    return {(full if (full := f"{prefix}.{name}") in known else name): tensor for name, tensor in state.items()}


class _Tensors:
    """Full tensors by name."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def names(self) -> list[str]:
        return list(self._tensors)

    def full(self, name: str) -> torch.Tensor:
        return self._tensors[name]

    def fill(self, name: str, parameter: Any) -> int:
        return fill_partition(name, parameter, self._tensors[name])


class _Slices:
    """A pack's slices of this rank."""

    def __init__(self, pack: Pack, component: str) -> None:
        self._pack = pack
        self._component = component
        self._whole: RankShard = pack.shard(rank=0, world_size=1, layout="replicate", component=component)
        self._parts: dict[tuple[int, int], RankShard] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._whole

    def names(self) -> list[str]:
        return self._whole.keys()

    def full(self, name: str) -> torch.Tensor:
        return self._whole.get_tensor(name)

    def fill(self, name: str, parameter: Any) -> int:
        if not hasattr(parameter, "ds_tensor"):
            return fill_partition(name, parameter, self.full(name))
        _check(name, parameter, tuple(self._whole.get_slice(name).get_shape()))
        place = int(parameter.ds_zero_partition_rank), int(parameter.ds_zero_partition_world_size)
        if place not in self._parts:
            self._parts[place] = self._pack.shard(*place, layout="zero3", component=self._component)
        part = _padded(self._parts[place].get_tensor(name), parameter.ds_numel, *place)
        _, count = _range(parameter)
        return _copy(parameter, part.narrow(0, 0, count) if count else None)


def _reader(source: Source, component: str | None) -> _Tensors | _Slices:
    if isinstance(source, Mapping):
        return _Tensors(source)
    return _Slices(*opened(source, component))


def _groups(named: Iterator[tuple[str, Any]]) -> Iterator[tuple[list[str], Any]]:
    """Names by the object that they are."""
    found: dict[int, tuple[list[str], Any]] = {}
    for name, tensor in named:
        found.setdefault(id(tensor), ([], tensor))[0].append(name)
    yield from found.values()


def _check(name: str, parameter: Any, shape: tuple[int, ...]) -> None:
    """Refuses partitions that this adapter does not cover."""
    secondary = getattr(parameter, "ds_zero_param_process_group", None) is not None
    if secondary or getattr(parameter, "ds_secondary_tensor", None) is not None:
        raise UnsupportedPartitionError(
            f"parameter `{name}` has a secondary partition", hint="unset zero_hpz_partition_size"
        )
    if getattr(parameter, "allreduce", True) is False or hasattr(parameter, "ds_zero_partition_process_group"):
        raise UnsupportedPartitionError(
            f"parameter `{name}` belongs to an expert of DeepSpeed's MoE, which has a partition group of its own",
            hint="load experts with DeepSpeed's own checkpoint loading",
        )
    part = parameter.ds_tensor
    location = getattr(part, "final_location", None)
    if getattr(parameter, "nvme_swapper", None) is not None or str(getattr(location, "value", location)) == "nvme":
        raise UnsupportedPartitionError(
            f"the partition of `{name}` is on NVMe", hint='set offload_param to {"device": "cpu"}'
        )
    if hasattr(part, "ds_quant_scale"):
        raise UnsupportedPartitionError(
            f"the partition of `{name}` is quantised", hint="unset zero_quantized_nontrainable_weights"
        )
    if getattr(parameter.ds_status, "name", "") == "AVAILABLE":
        raise UnsupportedPartitionError(
            f"parameter `{name}` is gathered at the moment",
            hint="load before deepspeed.initialize, outside of GatheredParameters",
        )
    if tuple(parameter.ds_shape) != shape:
        raise UnsupportedPartitionError(
            f"parameter `{name}` has shape {tuple(parameter.ds_shape)}, the tensor {shape}",
            hint="convert the checkpoint of this very model",
        )


def _range(parameter: Any) -> tuple[int, int]:
    """First element and number of real elements of this rank's partition."""
    size = int(parameter.ds_tensor.ds_numel)
    total = int(parameter.ds_numel)
    start = min(size * int(parameter.ds_zero_partition_rank), total)
    return start, min(size, total - start)


def _copy(parameter: Any, values: torch.Tensor | None) -> int:
    if values is None:
        return 0
    part = parameter.ds_tensor
    part.data.narrow(0, 0, values.numel()).copy_(values)
    return int(values.numel() * part.element_size())


def _padded(found: torch.Tensor, total: int, rank: int, size: int) -> torch.Tensor:
    """A slice of ``ceil(total / size)`` elements, from a slice or from a tensor that the pack keeps whole."""
    flat = found.reshape(-1)
    step = -(-total // size)
    if flat.numel() == step:
        return flat
    start = min(step * rank, total)
    part = flat.narrow(0, start, min(step, total - start))
    if part.numel() == step:
        return part
    padded = flat.new_zeros(step)
    padded.narrow(0, 0, part.numel()).copy_(part)
    return padded


def _partition(factory: Any, parameter: Any, values: torch.Tensor) -> Any:
    """A parameter as ``zero.Init`` leaves it, its partition being ``values``."""
    import torch
    from deepspeed.runtime.swap_tensor.partitioned_param_swapper import PartitionedParamStatus
    from deepspeed.runtime.zero.partition_parameters import free_param

    dtype = factory.dtype if parameter.dtype.is_floating_point else parameter.dtype
    device = torch.device(str(getattr(factory.remote_device, "value", factory.remote_device)))
    # One element seen as many: DeepSpeed reads shape and type, then frees it.
    made = torch.nn.Parameter(
        torch.empty(1, dtype=dtype, device=factory.local_device).expand(parameter.shape),
        requires_grad=parameter.requires_grad,
    )
    factory._convert_to_deepspeed_param(made)
    local: Any = values.to(device, dtype)
    if factory.pin_memory:
        from deepspeed.accelerator import get_accelerator

        local = get_accelerator().pin_memory(local)
    local.requires_grad = False
    local.ds_numel = values.numel()
    local.status = PartitionedParamStatus.AVAILABLE
    local.final_location = None
    partitioned: Any = made
    partitioned.ds_tensor = local
    partitioned.ds_numel_aligned = values.numel() * factory.dp_world_size
    free_param(made)
    return made


def _names_of_buffers(model: nn.Module) -> set[str]:
    return {name for name, _ in model.named_buffers(remove_duplicate=False)}


def _settings(config: Mapping[str, Any] | str | os.PathLike[str]) -> dict[str, Any]:
    if isinstance(config, Mapping):
        return dict(config)
    import json

    with open(config, encoding="utf-8") as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded


def _from_pack(packs: MappedPacks, tensor: torch.Tensor) -> bool:
    return tensor.numel() == 0 or packs.origin(tensor) is not None


def _same_on_all_ranks(packs: MappedPacks, tensors: Mapping[str, torch.Tensor] | None) -> bool:
    """True if every rank has these tensors at the same places of the same pack; ``None`` says no."""
    from ._frozen import _gather

    places = None if tensors is None else {n: packs.origin(t) for n, t in tensors.items() if t.numel()}
    everyone = _gather({"": places}, None)
    return places is not None and all(other[""] == places for other in everyone)
