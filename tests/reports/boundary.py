"""Which device each load asks for, noted where torch and safetensors are called; no GPU is needed.

Within :func:`recorded`, the process seems to see several devices. Whatever is asked to be on one is noted
with the index it would land on, by the rules of the library that is asked, and put on the CPU instead:
torch takes a bare ``"cuda"`` for the current device, safetensors for index 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode


class Devices:
    """The devices that a process seems to see, and what was asked of them."""

    def __init__(self, count: int, kind: str = "cuda") -> None:
        self.kind = kind
        self.count = count
        self.current = 0
        self.initialised = False
        #: (library, device as asked for, index it means, bytes) in order.
        self.asked: list[tuple[str, str, int, int]] = []
        #: Indices given to ``set_device``.
        self.set: list[int] = []

    def indices(self) -> set[int]:
        """Every index that something was asked to be on."""
        return {index for _, _, index, _ in self.asked}

    def by_library(self) -> dict[str, set[int]]:
        """The same by library."""
        found: dict[str, set[int]] = {}
        for library, _, index, _ in self.asked:
            found.setdefault(library, set()).add(index)
        return found

    def bytes_by_index(self) -> dict[int, int]:
        """Bytes that would be on each device."""
        found: dict[int, int] = {}
        for _, _, index, size in self.asked:
            found[index] = found.get(index, 0) + size
        return found

    def set_device(self, device: Any) -> None:
        """Stands for ``torch.cuda.set_device``."""
        index = device if isinstance(device, int) else torch.device(device).index
        if not 0 <= index < self.count:
            raise RuntimeError(f"invalid device ordinal {index}: {self.count} devices are visible")
        self.initialised, self.current = True, index
        self.set.append(index)

    def note(self, library: str, device: Any, size: int = 0) -> bool:
        """Notes a request; true if it was for one of these devices."""
        if not isinstance(device, (str, torch.device)):
            return False
        try:
            found = torch.device(device)
        except RuntimeError:
            return False
        if found.type != self.kind:
            return False
        bare = self.current if library == "torch" else 0
        self.asked.append((library, str(device), bare if found.index is None else found.index, size))
        return True


class _ToCpu(TorchFunctionMode):
    """Puts on the CPU what is asked to be on a device."""

    def __init__(self, devices: Devices) -> None:
        super().__init__()
        self.devices = devices

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.device:
            # A name is no request.
            return function(*args, **(kwargs or {}))
        size = sum(x.numel() * x.element_size() for x in args[:1] if isinstance(x, torch.Tensor) and not x.is_meta)
        moved = False

        def place(value: Any) -> Any:
            nonlocal moved
            if self.devices.note("torch", value, size):
                moved = True
                return torch.device("cpu")
            return value

        args = tuple(place(value) for value in args)
        kwargs = {key: place(value) for key, value in (kwargs or {}).items()}
        result = function(*args, **kwargs)
        if moved and not size and isinstance(result, torch.Tensor):
            library, device, index, _ = self.devices.asked[-1]
            self.devices.asked[-1] = library, device, index, result.numel() * result.element_size()
        return result


@contextmanager
def recorded(count: int, kind: str = "cuda") -> Iterator[Devices]:
    """The process seems to see ``count`` devices; enter before the adapter is installed."""
    from diffsynth.core.loader import file
    from diffsynth.core.vram import disk_map

    devices = Devices(count, kind)
    module = getattr(torch, kind)
    stand_ins = {
        "device_count": lambda: devices.count,
        "is_initialized": lambda: devices.initialised,
        "current_device": lambda: devices.current,
        "set_device": devices.set_device,
        "is_available": lambda: True,
    }
    original_load = torch.load

    def load(path: Any, map_location: Any = None, **options: Any) -> Any:
        loaded = original_load(path, map_location="cpu", **options)
        size = sum(value.numel() * value.element_size() for value in loaded.values() if isinstance(value, torch.Tensor))
        devices.note("torch", map_location, size)
        return loaded

    with ExitStack() as stack:
        for name, stand_in in stand_ins.items():
            stack.enter_context(mock.patch.object(module, name, stand_in, create=True))
        stack.enter_context(mock.patch.object(torch, "load", load))
        for owner in (file, disk_map):
            stack.enter_context(mock.patch.object(owner, "safe_open", _opener(owner.safe_open, devices)))
        stack.enter_context(_ToCpu(devices))
        yield devices


def _opener(original: Any, devices: Devices) -> Any:
    def safe_open(path: Any, framework: str = "pt", device: Any = "cpu", **options: Any) -> Any:
        asked = devices.note("safetensors", device, _tensor_bytes(path))
        return original(path, framework=framework, device="cpu" if asked else device, **options)

    return safe_open


def _tensor_bytes(path: Any) -> int:
    with open(path, "rb") as file:
        header = int.from_bytes(file.read(8), "little")
        file.seek(0, 2)
        return file.tell() - header - 8
