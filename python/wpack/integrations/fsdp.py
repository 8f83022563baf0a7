"""FSDP2, HSDP and tensor parallelism: parameters that are ``DTensor``, from a pack.

A model on the meta device went through ``fully_shard``, ``parallelize_module`` or both. Each of its
parameters becomes a DTensor over this rank's own slice; a full tensor exists nowhere but in the file.

Sources of the rules: ``torch/distributed/fsdp/_fully_shard/_fsdp_param.py`` (rows by ``torch.chunk``) and
``torch/distributed/tensor/placement_types.py`` (``Shard``, ``_StridedShard``; placements act from left to
right).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .. import Pack, RankShard, WpackError
from . import _refuse
from ._config import opened

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh


class UnsupportedPlacementError(WpackError):
    """A parameter is placed in a way that this adapter does not cover."""


def load_into(
    model: nn.Module,
    pack: Pack | str | os.PathLike[str],
    mesh: DeviceMesh | None = None,
    *,
    component: str | None = None,
    device: str | torch.device | None = None,
    strict: bool = True,
) -> Any:
    """Makes a sharded model real: each parameter becomes a ``DTensor`` of this rank's own slice.

    On the CPU slices are views of the mapping where they are ranges of the pack: all rows of FSDP2 and HSDP,
    and columns of ``ColwiseParallel``, from a ``replicate`` pack of any number of ranks and from an ``fsdp2``
    pack of this one. Other slices (``RowwiseParallel``) are copied, a slice at a time. Parameters that are one
    object stay one; what is no DTensor is loaded whole.

    Args:
        model: The sharded model, its parameters on the meta device.
        pack: The pack, or its path (``x.wpack`` or ``x.wpack#component``).
        mesh: The mesh that the model was sharded over; each parameter's own if not given.
        component: Component of the pack; not needed where there is only one.
        device: Where shards go; the mesh's own device type if not given, and of that this rank's device.
        strict: As ``load_state_dict`` has it.

    Returns:
        ``missing_keys`` and ``unexpected_keys``, as torch has them.

    Raises:
        UnsupportedPlacementError: a parameter is placed by something else than ``Shard`` and ``Replicate``, or
            on another mesh than ``mesh``, or a tensor has another shape than its parameter.
        LoadIntoError: names differ and ``strict`` is set.
        QuantizedModelError: the model is quantised.
    """
    import torch
    from torch.distributed.tensor import DTensor

    from .._load import load_into as assign

    _refuse.quantized_model(model)
    source = _Source(*opened(pack, component))
    target = _target(model, device)
    aliases = _aliases(model)
    state: dict[str, Any] = {}
    for names in aliases:
        given = [name for name in names if name in source]
        if not given:
            continue
        parameter = _find(model, names[0])
        # Where the pack gives several names of one parameter, the last counts, as when torch copies in turn.
        name = given[-1]
        if not isinstance(parameter, DTensor):
            value: Any = source.whole(name).to(target)
            if isinstance(parameter, torch.nn.Parameter):
                value = torch.nn.Parameter(value, requires_grad=parameter.requires_grad)
        else:
            local = _local(name, parameter, mesh, source).to(target)
            spread = DTensor.from_local(
                local,
                parameter.device_mesh,
                parameter.placements,
                run_check=False,
                shape=parameter.shape,
                stride=parameter.stride(),
            )
            value = torch.nn.Parameter(spread, requires_grad=parameter.requires_grad)
        state.update(dict.fromkeys(names, value))
    for name in source.names():
        # Left for torch to report.
        state.setdefault(name, torch.empty(0, device="meta"))
    return assign(model, state, strict, True)


class _Source:
    """A component's tensors, whole and by rows, as views where that is possible."""

    def __init__(self, pack: Pack, component: str) -> None:
        self._pack = pack
        self._component = component
        self._whole: RankShard = pack.shard(rank=0, world_size=1, layout="replicate", component=component)
        self._rows: dict[tuple[int, int], RankShard] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._whole

    def names(self) -> list[str]:
        return self._whole.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._whole.get_slice(name).get_shape())

    def whole(self, name: str) -> torch.Tensor:
        return self._whole.get_tensor(name)

    def rows(self, name: str, rank: int, size: int) -> torch.Tensor | None:
        """The rows of ``torch.chunk``; ``None`` where the pack keeps the tensor whole."""
        if (rank, size) not in self._rows:
            self._rows[rank, size] = self._pack.shard(
                rank=rank, world_size=size, layout="fsdp2", component=self._component
            )
        shard = self._rows[rank, size]
        found = shard.get_tensor(name)
        full = self.shape(name)
        return found if size == 1 or tuple(found.shape) != full else None


def _local(name: str, parameter: Any, mesh: DeviceMesh | None, source: _Source) -> torch.Tensor:
    """This rank's part of a parameter, as torch would cut it."""
    from torch.distributed.tensor import Replicate

    own: DeviceMesh = parameter.device_mesh
    if mesh is not None and (own.mesh.tolist() != mesh.mesh.tolist()) and own not in _parts(mesh):
        raise UnsupportedPlacementError(
            f"parameter `{name}` lies on {own}, not on {mesh}", hint="leave mesh= out: each parameter knows its own"
        )
    if source.shape(name) != tuple(parameter.shape):
        raise UnsupportedPlacementError(
            f"parameter `{name}` has shape {tuple(parameter.shape)}, the pack's tensor {source.shape(name)}",
            hint="convert the checkpoint of this very model",
        )
    steps = [(axis, placement) for axis, placement in enumerate(parameter.placements) if placement != Replicate()]
    expected = tuple(parameter.to_local().shape)
    local = None
    if len(steps) == 1 and _kind(name, parameter, steps[0][1]) == ("rows", 0):
        local = source.rows(name, own.get_local_rank(steps[0][0]), own.size(steps[0][0]))
    if local is None:
        local = source.whole(name)
        for axis, placement in steps:
            local = _cut(local, name, parameter, placement, own.get_local_rank(axis), own.size(axis))
        local = local.contiguous()
    if tuple(local.shape) != expected:
        raise UnsupportedPlacementError(
            f"parameter `{name}` has local shape {expected} on this rank, the slice {tuple(local.shape)}",
            hint="report this with the versions of torch and wpack: the rule has changed",
        )
    return local


def _kind(name: str, parameter: Any, placement: Any) -> tuple[str, int]:
    """How a placement cuts, and how many blocks it cuts apart."""
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    if isinstance(placement, _StridedShard):
        return "strided", int(placement.split_factor)
    if type(placement) is Shard:
        return "rows" if placement.dim == 0 else "columns", 0
    raise UnsupportedPlacementError(
        f"parameter `{name}` has placements {parameter.placements}",
        hint="only Shard and Replicate are covered; load the full tensors instead",
    )


def _cut(
    tensor: torch.Tensor, name: str, parameter: Any, placement: Any, rank: int, size: int
) -> torch.Tensor:
    """Part ``rank`` of ``size``: ``torch.chunk``, or that of each of several blocks."""
    import torch

    kind, blocks = _kind(name, parameter, placement)
    if kind != "strided":
        return _chunk(tensor, placement.dim, rank, size)
    parts = [
        _chunk(_chunk(tensor, placement.dim, block, blocks), placement.dim, rank, size) for block in range(blocks)
    ]
    return torch.cat(parts, placement.dim)


def _chunk(tensor: torch.Tensor, dim: int, rank: int, size: int) -> torch.Tensor:
    length = tensor.shape[dim]
    step = -(-length // size)
    start = min(step * rank, length)
    return tensor.narrow(dim, start, min(step, length - start))


def _parts(mesh: DeviceMesh) -> list[DeviceMesh]:
    names = mesh.mesh_dim_names
    return [] if names is None else [mesh[name] for name in names]


def _target(model: nn.Module, device: str | torch.device | None) -> torch.device:
    from torch.distributed.tensor import DTensor

    from .._device import resolve

    if device is not None:
        return resolve(device)
    first = next((p for p in model.parameters() if isinstance(p, DTensor)), None)
    return resolve("cpu" if first is None else first.device_mesh.device_type)


def _aliases(model: nn.Module) -> list[list[str]]:
    """Names by the parameter or buffer that they are."""
    found: dict[int, list[str]] = {}
    for named in (model.named_parameters, model.named_buffers):
        for name, tensor in named(remove_duplicate=False):
            found.setdefault(id(tensor), []).append(name)
    kept = set(model.state_dict(keep_vars=True))
    # Buffers that a state dict leaves out are not loaded.
    return [names for names in ([n for n in group if n in kept] for group in found.values()) if names]


def _find(model: nn.Module, name: str) -> Any:
    owner, _, leaf = name.rpartition(".")
    return getattr(model.get_submodule(owner), leaf)
