"""Saves a state dict of every dtype and kind of view as torch can, and says what it holds.

    python save.py FOLDER

writes `zip.pt`, `legacy.pt`, `aligned.pt` (protocol 4, no checksums, storages on pages) and
`expected.json`: for each name dtype, shape and SHA-256 of the logical bytes, and the groups of names
that are one view.
"""

import hashlib
import json
import sys
import warnings
from collections import OrderedDict
from pathlib import Path

import torch

# Names as a packfile has them.
DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex32: "C32",
    torch.complex64: "C64",
    torch.complex128: "C128",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float8_e8m0fnu: "F8_E8M0",
    torch.float4_e2m1fn_x2: "F4",
    torch.bits8: "BITS8",
    torch.bits16: "BITS16",
    torch.bits1x8: "BITS1X8",
    torch.bits2x4: "BITS2X4",
    torch.bits4x2: "BITS4X2",
}

generator = torch.Generator().manual_seed(20)


def random_bytes(count):
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)


def values(dtype, *shape):
    """Random bits, NaNs among them; booleans are 0 and 1."""
    count = 1
    for size in shape:
        count *= size
    raw = random_bytes(count * dtype.itemsize)
    if dtype == torch.bool:
        raw &= 1
    return raw.view(dtype).reshape(shape)


def bits(tensor):
    """The logical bytes, by way of integers: the dtype's own kernels may be missing."""
    tensor = tensor.detach()
    if tensor.dtype.is_complex:
        tensor = tensor.resolve_conj()
    tensor = tensor.resolve_neg()
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    width = tensor.dtype.itemsize
    if width == 16:
        tensor = torch.view_as_real(tensor)
        width = 8
    flat = tensor.view(integer[width]).contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def state_dict():
    out = OrderedDict()
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        out[f"dtypes.{name}"] = values(dtype, 5, 6)
        if dtype != torch.float4_e2m1fn_x2:
            out[f"scalars.{name}"] = values(dtype, 1).reshape(())
        out[f"empty.{name}"] = values(dtype, 3, 0, 2)
        # Strides and an offset, in elements of the dtype.
        base = values(dtype, 4, 6, 8)
        out[f"strided.{name}"] = base[1::2, ::3, 1:7]
        out[f"transposed.{name}"] = base.permute(2, 0, 1)
    base = values(torch.float32, 1000)
    out["views.offset"] = base[10:20]
    out["views.step"] = base[3:900:7]
    out["views.overlap_a"] = base[100:200]
    out["views.overlap_b"] = base[150:250]
    out["views.expanded"] = base[:4].reshape(1, 4, 1).expand(3, 4, 5)
    out["views.expanded_scalar"] = base[7].expand(6)
    out["views.unfolded"] = base.unfold(0, 9, 2)[:50]
    out["views.diagonal"] = base[:900].reshape(30, 30).diagonal()
    out["views.channels_last"] = values(torch.bfloat16, 2, 3, 5, 4).to(memory_format=torch.channels_last)
    out["views.size_one"] = base[:24].as_strided((1, 6, 4), (999, 4, 1))
    out["views.past_end"] = base[1000:]
    large = values(torch.float16, 1300, 900)
    out["views.large_transposed"] = large.t()
    out["views.large_columns"] = large[:, 1::3]
    for dtype in (torch.complex64, torch.complex128, torch.complex32):
        name = str(dtype).removeprefix("torch.")
        number = values(dtype, 3, 4)
        out[f"bits.conj_{name}"] = number.conj()
        out[f"bits.conj_t_{name}"] = number.conj().t()
        # A storage may not be saved under two types.
        out[f"bits.neg_{name}"] = values(dtype, 3, 4).conj().imag
        out[f"bits.real_{name}"] = values(dtype, 3, 4).real
    weight = values(torch.float32, 7, 5)
    out["tied.embed"] = weight
    out["tied.head"] = weight
    out["tied.view"] = weight.view(7, 5)
    out["tied.not"] = weight.clone()
    out["tied.transposed"] = weight.t()
    out["parameter.plain"] = torch.nn.Parameter(values(torch.float32, 3, 3))
    out["parameter.frozen"] = torch.nn.Parameter(values(torch.float16, 3), requires_grad=False)
    attributes = torch.nn.Parameter(values(torch.bfloat16, 2))
    attributes.tag = "something"
    out["parameter.attributes"] = attributes
    out["buffer"] = torch.nn.Buffer(values(torch.int64, 2))
    tagged = values(torch.float32, 2)
    tagged.tag = 1
    out["tensor.attributes"] = tagged
    out["names.\u00e9\U0001f600 with space"] = values(torch.uint8, 1)
    return out


def expected(state):
    tensors = {}
    groups = {}
    for name, tensor in state.items():
        shape = list(tensor.shape)
        if tensor.dtype == torch.float4_e2m1fn_x2:
            shape[-1] *= 2
        tensors[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": shape,
            "sha256": hashlib.sha256(bits(tensor)).hexdigest(),
        }
        strides = tuple(0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride()))
        flags = (tensor.is_conj(), tensor.is_neg())
        storage = tensor.untyped_storage()._cdata
        view = (storage, tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), strides, flags)
        groups.setdefault(view, []).append(name)
    aliases = sorted(sorted(names) for names in groups.values() if len(names) > 1)
    return {"torch": torch.__version__, "tensors": tensors, "aliases": aliases}


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    state = state_dict()
    torch.save(state, folder / "zip.pt")
    torch.save(state, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    from torch.utils.serialization import config

    config.save.storage_alignment = 4096
    torch.serialization.set_crc32_options(False)
    torch.save(state, folder / "aligned.pt", pickle_protocol=4)
    (folder / "expected.json").write_text(json.dumps(expected(state), indent=1))


if __name__ == "__main__":
    main()
