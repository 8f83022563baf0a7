"""Which device a bare ``"cuda"`` means: this rank's own, never index 0 by accident."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import DeviceAmbiguousError, DeviceOutOfRangeError, NoDeviceError

if TYPE_CHECKING:
    import torch

# Device types with one device, or none to choose from.
_UNINDEXED = ("cpu", "meta", "mps")


def resolve(
    device: str | int | torch.device | None,
    *,
    environ: Mapping[str, str] | None = None,
    backend: Any = None,
) -> torch.device:
    """The device of this rank.

    A device that names an index is taken as it is. A bare type such as ``"cuda"`` means, in this order:

    1. the only visible device, where each process sees one (``CUDA_VISIBLE_DEVICES`` per process);
    2. the current device, where the program has set one other than the default index 0;
    3. index ``LOCAL_RANK``, checked against the number of visible devices;
    4. the current device, where the program has initialised the backend and no launcher set
       ``LOCAL_RANK`` or ``RANK``.

    Args:
        device: ``"cpu"``, ``"cuda"``, ``"cuda:3"``, ``"mps"``, ``"xpu"``, ``"npu"``, a ``torch.device``, or
            an index of the current accelerator; ``None`` is the CPU.
        environ: Environment to read; ``os.environ`` if not given.
        backend: Module that stands for ``torch.cuda``, for tests.

    Raises:
        DeviceAmbiguousError: several devices are visible and nothing says which one is this rank's.
        DeviceOutOfRangeError: ``LOCAL_RANK`` is no index of a visible device.
        NoDeviceError: no device of that type is visible.
    """
    import torch

    if device is None:
        return torch.device("cpu")
    found = torch.device(device)
    if found.type in _UNINDEXED or found.index is not None:
        return found
    module = backend if backend is not None else getattr(torch, found.type, None)
    if module is None or not hasattr(module, "device_count"):
        return found
    env = os.environ if environ is None else environ
    count = int(module.device_count())
    if count == 0:
        raise NoDeviceError(f"no {found.type} device is visible to this process")
    if count == 1:
        return torch.device(found.type, 0)
    initialised = bool(module.is_initialized()) if hasattr(module, "is_initialized") else False
    current = int(module.current_device()) if initialised else 0
    if current != 0:
        return torch.device(found.type, current)
    local = env.get("LOCAL_RANK")
    if local is not None:
        return torch.device(found.type, _index(local, count, found.type))
    if initialised and "RANK" not in env:
        return torch.device(found.type, current)
    raise DeviceAmbiguousError(
        f"{count} {found.type} devices are visible and nothing says which one is this process's",
        hint=f'call torch.{found.type}.set_device(index) first, start with torchrun (it sets LOCAL_RANK), '
        f'or name the index: device="{found.type}:0"',
    )


def _index(local: str, count: int, kind: str) -> int:
    hint = "start as many processes on this node as it has devices, or give each process its own device"
    try:
        index = int(local)
    except ValueError:
        raise DeviceOutOfRangeError(f"LOCAL_RANK is {local!r}, not a number", hint=hint) from None
    if not 0 <= index < count:
        raise DeviceOutOfRangeError(
            f"LOCAL_RANK is {index}, but {count} {kind} devices are visible", hint=hint
        )
    return index
