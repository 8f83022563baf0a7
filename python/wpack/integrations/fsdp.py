"""FSDP2 (``torch.distributed.fsdp.fully_shard``): local shards from a pack, no full tensor anywhere.

Source of the rule: ``torch/distributed/fsdp/_fully_shard/_fsdp_param.py``; a parameter of s rows over W
ranks gives rank r the rows ``[c*r, min(s, c*r + c))``, c = ceil(s/W).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import Pack, WpackError

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh


class UnsupportedPlacementError(WpackError):
    """A parameter is placed in a way that this adapter does not cover."""


def load_into(
    model: nn.Module,
    pack: Pack,
    mesh: DeviceMesh | None = None,
    *,
    component: str | None = None,
    device: str | torch.device | None = None,
    strict: bool = True,
) -> Any:
    """Makes a sharded model real: each parameter becomes a ``DTensor`` of this rank's own slice.

    The model was built on the meta device and went through ``fully_shard``. From a ``fsdp2`` pack of this
    world size, and from a ``replicate`` pack of any, the slices are views of the mapping on the CPU, and are
    read through the ring on another device. Parameters that are one object stay one.

    Args:
        model: The sharded model; parameters that are no DTensors are loaded whole.
        pack: The pack.
        mesh: The mesh given to ``fully_shard``, one axis or (replicate, shard); each parameter's own if not
            given.
        component: Component of the pack; not needed where there is only one.
        device: Where shards go; the mesh's own device type if not given.
        strict: As ``load_state_dict`` has it.

    Raises:
        UnsupportedPlacementError: a parameter is sharded along another dimension than 0, or twice.
    """
    import torch
    from torch.distributed.tensor import DTensor

    shards: dict[tuple[int, int], dict[str, torch.Tensor]] = {}
    state: dict[str, Any] = {}
    parameters: dict[int, nn.Parameter] = {}
    named = dict(model.named_parameters(remove_duplicate=False))
    target = device
    if target is None:
        first = next((p for p in named.values() if isinstance(p, DTensor)), None)
        target = "cpu" if first is None else first.device_mesh.device_type

    def held(rank: int, size: int) -> dict[str, torch.Tensor]:
        if (rank, size) not in shards:
            layout = "replicate" if size == 1 else "fsdp2"
            shard = pack.shard(rank=rank, world_size=size, layout=layout, component=component)
            shards[rank, size] = shard.state_dict(target)
        return shards[rank, size]

    for name, parameter in named.items():
        if not isinstance(parameter, DTensor):
            rank, size = 0, 1
        else:
            rank, size = _place(name, parameter, mesh)
        if name not in held(rank, size):
            continue
        if id(parameter) not in parameters:
            value: Any = held(rank, size)[name]
            if isinstance(parameter, DTensor):
                value = DTensor.from_local(
                    value,
                    parameter.device_mesh,
                    parameter.placements,
                    run_check=False,
                    shape=parameter.shape,
                    stride=parameter.stride(),
                )
            parameters[id(parameter)] = torch.nn.Parameter(value, requires_grad=parameter.requires_grad)
        state[name] = parameters[id(parameter)]
    # A checkpoint does not say what is a buffer, so the layout may cut one: it is taken whole, by itself.
    whole = pack.shard(rank=0, world_size=1, layout="replicate", component=component)
    for name, _ in model.named_buffers(remove_duplicate=False):
        if name in whole:
            state[name] = whole.get_tensor(name).to(target)
    return model.load_state_dict(state, strict=strict, assign=True)


def _place(name: str, parameter: Any, mesh: DeviceMesh | None) -> tuple[int, int]:
    """Rank and number of ranks along the axis that cuts the parameter."""
    from torch.distributed.tensor import Replicate, Shard

    own = parameter.device_mesh if mesh is None else mesh
    found = (0, 1)
    for axis, placement in enumerate(parameter.placements):
        if isinstance(placement, Replicate):
            continue
        if type(placement) is not Shard or placement.dim != 0 or found[1] != 1:
            raise UnsupportedPlacementError(
                f"parameter `{name}` has placements {parameter.placements}",
                hint="only one Shard(0) beside Replicate is covered; load the full tensors instead",
            )
        found = (own.get_local_rank(axis), own.size(axis))
    return found
