"""What a training process measures of itself, and the parts of a machine with GPUs that a CPU run lacks.

Figures go to ``$MEASURE_OUT/<rank>.jsonl``, one object per line.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def rollup(pid: int | str = "self") -> dict[str, int]:
    """Bytes of a process by kind, as the kernel counts them."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        key, _, rest = line.partition(":")
        found[key] = int(rest.split()[0]) * 1024
    return found


def point(name: str, **more: Any) -> None:
    """Anonymous memory and proportional share of this process, all ranks at the same moment."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    _barrier()
    now = rollup()
    _barrier()
    record(point=name, anonymous=now["Anonymous"], pss=now["Pss"], **more)


def read_bytes() -> int:
    """Bytes that this process made the kernel fetch from storage."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    raise SystemExit("/proc/self/io has no read_bytes")


class Spent:
    """What this process has spent since then."""

    def __init__(self) -> None:
        self._seconds, self._processor, self._read = time.monotonic(), time.process_time(), read_bytes()

    def figures(self) -> dict[str, Any]:
        """Seconds, seconds of processor time, and bytes from storage."""
        seconds, processor = time.monotonic() - self._seconds, time.process_time() - self._processor
        return {"seconds": seconds, "processor": processor, "read": read_bytes() - self._read}


def record(**values: Any) -> None:
    """One line of figures."""
    folder = Path(os.environ["MEASURE_OUT"])
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{os.environ.get('RANK', '0')}.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


def _barrier() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def trainable_bytes(model: torch.nn.Module) -> int:
    """Bytes of the parameters that are trained; of all of a parameter where it is partitioned."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return sum(getattr(p, "ds_numel", p.numel()) * p.element_size() for p in trained)


def computed_bytes(model: torch.nn.Module) -> int:
    """Bytes of tensors that a model computes for itself, such as tables of positions: no checkpoint holds them."""
    found: dict[int, int] = {}
    for module in model.modules():
        kept = [module._buffers[name] for name in module._non_persistent_buffers_set]
        for value in [*vars(module).values(), *kept]:
            for tensor in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
                    found[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
    return sum(found.values())


def deepspeed_without_gpu() -> None:
    """accelerate starts DeepSpeed on accelerators alone; this gives it gloo and the CPU.

    Nothing else is changed: the engine, its optimizers and its broadcast are DeepSpeed's. Its shared-memory
    collectives, which a compiler is needed for, are left out.
    """
    import importlib

    from accelerate import state
    from accelerate.utils import DistributedType

    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # type: ignore[attr-defined]
    state.PartialState._prepare_backend = lambda self, *args, **more: ("gloo", DistributedType.NO)  # type: ignore[method-assign]
