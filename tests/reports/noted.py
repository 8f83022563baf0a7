"""Which device a load asks for, noted inside a training process that was started by a launcher.

Whether the script runs through the adapter's launcher makes no difference to it: an adapter that is installed
stays so, and what the adapter itself asks torch and safetensors for is noted.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import boundary
import measure
import torch
from diffsynth.core.device import npu_compatible_device as device_names


def load(count: int, make: Callable[[str], Any]) -> None:
    """Calls ``make("cuda")`` in a process that seems to see ``count`` devices, records what it asked for, and drops
    what it made."""
    adapter = sys.modules.get("wpack.integrations.diffsynth._install")
    installed = adapter is not None and adapter.installed()
    # The boundary is what the adapter calls, so it is entered first.
    if installed:
        adapter.uninstall()  # type: ignore[union-attr]
    before = measure.read_bytes()
    with (
        boundary.recorded(count) as devices,
        mock.patch.object(device_names, "IS_CUDA_AVAILABLE", True),
        mock.patch.object(torch.cpu, "empty_cache", lambda: None, create=True),
    ):
        if installed:
            adapter.install()  # type: ignore[union-attr]
        try:
            made = make("cuda")
        finally:
            if installed:
                adapter.uninstall()  # type: ignore[union-attr]
    measure.record(asked=sorted(devices.indices()), bytes=devices.bytes, read=measure.read_bytes() - before)
    del made, devices
    gc.collect()
    if installed:
        adapter.install()  # type: ignore[union-attr]
