"""This process's device, wherever DiffSynth-Studio names a bare device type while it loads."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from ..._device import resolve


def own(device: Any) -> Any:
    """The device that a load goes to.

    A bare type becomes this process's device, and that one becomes the current one: what torch puts on the
    bare type later (``model.to("cuda")``) goes to the same place. What torch does not know as a device is
    left to whoever asked for it.

    Raises:
        DeviceAmbiguousError: several devices are visible and nothing says which is this process's.
    """
    import torch

    if device is None:
        return None
    try:
        asked = torch.device(device)
    except (RuntimeError, TypeError):
        return device
    found = resolve(asked)
    if asked.index is None and found.index is not None:
        module = getattr(torch, found.type)
        if not module.is_initialized() or module.current_device() != found.index:
            module.set_device(found.index)
    return found


def usp(original: Callable[..., Any]) -> Callable[..., Any]:
    """``initialize_usp`` takes the global rank for the device's index, which is wrong beyond one node."""

    @functools.wraps(original)
    def initialize_usp(device_type: Any) -> Any:
        import torch

        kind = str(device_type).partition(":")[0]
        module = getattr(torch, kind, None)
        if "LOCAL_RANK" not in os.environ or not hasattr(module, "set_device"):
            return original(device_type)
        index = resolve(kind).index
        set_device = module.set_device  # type: ignore[union-attr]
        module.set_device = lambda _rank: set_device(index)  # type: ignore[union-attr]
        try:
            return original(device_type)
        finally:
            module.set_device = set_device  # type: ignore[union-attr]

    return initialize_usp
