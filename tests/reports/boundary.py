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
        #: (library, device as asked for, index it means) in order.
        self.asked: list[tuple[str, str, int]] = []
        #: Bytes that would be put on each device.
        self.bytes: dict[int, int] = {}
        #: Indices given to ``set_device``.
        self.set: list[int] = []
        # Where a tensor already is, by address; tensors are kept so that no address comes twice.
        self._placed: dict[int, int] = {}
        self._kept: list[torch.Tensor] = []

    def indices(self) -> set[int]:
        """Every index that something was asked to be on."""
        return {index for _, _, index in self.asked}

    def by_library(self) -> dict[str, set[int]]:
        """The same by library."""
        found: dict[str, set[int]] = {}
        for library, _, index in self.asked:
            found.setdefault(library, set()).add(index)
        return found

    def set_device(self, device: Any) -> None:
        """Stands for ``torch.cuda.set_device``."""
        index = device if isinstance(device, int) else torch.device(device).index
        if not 0 <= index < self.count:
            raise RuntimeError(f"invalid device ordinal {index}: {self.count} devices are visible")
        self.initialised, self.current = True, index
        self.set.append(index)

    def place(self, tensor: torch.Tensor, index: int) -> None:
        """Counts a tensor that is now on a device; one that is there already costs nothing."""
        if tensor.is_meta or self._placed.get(tensor.data_ptr()) == index:
            return
        self._placed[tensor.data_ptr()] = index
        self._kept.append(tensor)
        self.bytes[index] = self.bytes.get(index, 0) + tensor.numel() * tensor.element_size()

    def note(self, library: str, device: Any) -> int | None:
        """Notes a request for one of these devices; the index that it means."""
        if not isinstance(device, (str, torch.device)):
            return None
        try:
            found = torch.device(device)
        except RuntimeError:
            return None
        if found.type != self.kind:
            return None
        index = found.index
        if index is None:
            index = self.current if library == "torch" else 0
        self.asked.append((library, str(device), index))
        return index


class _ToCpu(TorchFunctionMode):
    """Puts on the CPU what is asked to be on a device."""

    def __init__(self, devices: Devices) -> None:
        super().__init__()
        self.devices = devices

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.device:
            # A name is no request.
            return function(*args, **(kwargs or {}))
        asked: list[int] = []

        def place(value: Any) -> Any:
            index = self.devices.note("torch", value)
            if index is None:
                return value
            asked.append(index)
            return torch.device("cpu")

        args = tuple(place(value) for value in args)
        kwargs = {key: place(value) for key, value in (kwargs or {}).items()}
        result = function(*args, **kwargs)
        if asked and isinstance(result, torch.Tensor):
            self.devices.place(result, asked[0])
        return result


class _Opened:
    """A safetensors file whose tensors count as being on a device."""

    def __init__(self, opened: Any, devices: Devices, index: int) -> None:
        self._opened, self._devices, self._index = opened, devices, index

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def get_tensor(self, name: str) -> torch.Tensor:
        """One tensor."""
        tensor = self._opened.get_tensor(name)
        self._devices.place(tensor, self._index)
        return tensor  # type: ignore[no-any-return]


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
        index = devices.note("torch", map_location)
        loaded = original_load(path, map_location=map_location if index is None else "cpu", **options)
        if index is not None:
            for value in loaded.values():
                devices.place(value, index)
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
        index = devices.note("safetensors", device)
        opened = original(path, framework=framework, device=device if index is None else "cpu", **options)
        return opened if index is None else _Opened(opened, devices, index)

    return safe_open
