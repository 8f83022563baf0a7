"""torch's side: element types, and tensors over mapped memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .errors import TorchMissingError, UnsupportedDTypeError

if TYPE_CHECKING:
    import torch

# The pack's names and torch's. A type that the installed torch lacks is left out of the table.
_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C32": "complex32",
    "C64": "complex64",
    "C128": "complex128",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "F4": "float4_e2m1fn_x2",
    "BITS1X8": "bits1x8",
    "BITS2X4": "bits2x4",
    "BITS4X2": "bits4x2",
    "BITS8": "bits8",
    "BITS16": "bits16",
}


def need() -> Any:
    """torch, or a typed error that says how to do without."""
    try:
        import torch
    except ImportError as error:
        raise TorchMissingError(
            "torch is not installed",
            hint="pip install torch, or use shard.view(name) with numpy.asarray or any DLPack consumer",
        ) from error
    return torch


@lru_cache(maxsize=1)
def dtypes() -> dict[str, torch.dtype]:
    """Element types by the pack's name, those of the installed torch."""
    torch = need()
    return {ours: getattr(torch, name) for ours, name in _NAMES.items() if hasattr(torch, name)}


def dtype_of(name: str, tensor: str) -> torch.dtype:
    """torch's type for a name; a typed error if the installed torch has none."""
    found = dtypes().get(name)
    if found is None:
        raise unsupported(name, tensor)
    return found


def unsupported(name: str, tensor: str) -> UnsupportedDTypeError:
    """The error of an element type that the installed torch lacks."""
    version = need().__version__
    return UnsupportedDTypeError(
        f"tensor `{tensor}` holds {name}, which torch {version} has no type for",
        hint=f"install a newer torch, or take the bytes: shard.view({tensor!r}).bytes()",
    )


@contextmanager
def gc_paused() -> Iterator[None]:
    """No collections inside: making 100 000 containers would start dozens that find nothing."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def from_dlpack() -> Any:
    """torch's import of a capsule."""
    need()
    from torch.utils.dlpack import from_dlpack as convert

    return convert


def cast(tensors: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Floating tensors (complex ones apart) in another type; ties stay ties, others stay views."""
    made: dict[tuple[int, torch.Size], torch.Tensor] = {}
    out = {}
    for name, tensor in tensors.items():
        if tensor.dtype == dtype or not tensor.dtype.is_floating_point:
            out[name] = tensor
            continue
        key = (tensor.data_ptr(), tensor.shape)
        first = made.get(key) if tensor.numel() else None
        if first is None:
            made[key] = out[name] = tensor.to(dtype)
        else:
            out[name] = first.detach()
    return out
