"""accelerate: a pack in the place of a checkpoint folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .. import Pack, WpackError
from . import _refuse
from ._config import opened
from ._frozen import GUARD

if TYPE_CHECKING:
    import torch
    from torch import nn


class DeviceMapError(WpackError):
    """A parameter has no entry in the device map."""


def share_frozen_weights() -> None:
    """Keeps frozen weights of packs out of the first broadcast of DDP and DeepSpeed, from now on.

    Only what is proven equal on all ranks is left out: the same place of a pack of the same digest, and no page
    written. Call it before the model is wrapped; calling it twice is calling it once.
    """
    GUARD.install()


def load_pack_in_model(
    model: nn.Module,
    pack: Pack | str | os.PathLike[str],
    device_map: Mapping[str, Any] | None = None,
    *,
    component: str | None = None,
    dtype: torch.dtype | None = None,
    strict: bool = True,
) -> Any:
    """Loads a pack into a model, in the manner of accelerate's ``load_checkpoint_in_model``.

    What the device map puts on ``"cpu"`` or ``"disk"`` is mapped: shared with every process that maps the
    same pack, and backed by the file, so that no offload folder is needed. The rest is read through the
    ring to its device, one device after the other. To run a model whose parts lie on several devices, call
    ``accelerate.dispatch_model(model, device_map)`` behind it.

    Args:
        model: The model, on the meta device or real.
        pack: The pack, or its path (``x.wpack`` or ``x.wpack#component``).
        device_map: Device for each module path, ``""`` for the whole model; all on the CPU if not given.
        component: Component of the pack; not needed where there is only one.
        dtype: Cast floating tensors.
        strict: Missing or unexpected names are an error.

    Raises:
        DeviceMapError: the map covers a tensor by no entry.
        LoadIntoError: names or shapes differ and ``strict`` is set.
        QuantizedModelError: the model is quantised.
    """
    _refuse.quantized_model(model)
    source, name = opened(pack, component)
    shard = source.shard(rank=0, world_size=1, layout="replicate", component=name)
    if not device_map:
        return shard.load_into(model, strict=strict, dtype=dtype)
    from .._load import load_into

    by_device: dict[str, list[str]] = {}
    for name in shard.keys():
        place = str(_device_of(name, device_map))
        by_device.setdefault("cpu" if place == "disk" else place, []).append(name)
    tensors: dict[str, torch.Tensor] = {}
    for device, names in by_device.items():
        tensors.update(_load(shard, device, names, dtype))
    return load_into(model, tensors, strict, True)


def _load(shard: Any, device: str, names: list[str], dtype: torch.dtype | None) -> dict[str, torch.Tensor]:
    import torch

    from .._device import resolve
    from .._torch import cast

    target = resolve(int(device) if device.isdecimal() else device)
    if target.type in ("cpu", "meta"):
        mapped = shard.state_dict(target)
        tensors = {name: mapped[name] for name in names}
    else:
        like = shard.state_dict("meta")
        out: dict[str, torch.Tensor] = {}
        for name in names:
            out[name] = torch.empty(like[name].shape, dtype=like[name].dtype, device=target)
        tensors = shard.state_dict(target, out=out)
    return tensors if dtype is None else cast(tensors, dtype)


def _device_of(name: str, device_map: Mapping[str, Any]) -> Any:
    prefix = name
    while True:
        if prefix in device_map:
            return device_map[prefix]
        if not prefix:
            raise DeviceMapError(
                f"the device map has no entry for `{name}`", hint='add one for its module, or {"": "cpu"} for the rest'
            )
        prefix = prefix.rpartition(".")[0]
