"""What torch makes of every hard value, for every pair of types that wpack casts.

    oracle.py full DIR     writes DIR/FROM.src and DIR/FROM.TO, raw little-endian elements
    oracle.py table        prints tests/cast/table.txt

Run with ATEN_CPU_CAPABILITY=default for torch's code without vectors, which differs in NaN payloads.
Needs torch (proven with 2.11.0) and numpy.
"""

import pathlib
import sys
import warnings

import numpy as np
import torch

TARGETS = {
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
}
SOURCES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    **TARGETS,
}
UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def tensor(name, bits):
    """The tensor of a type whose elements have these bits."""
    return torch.from_numpy(bits.view(np.uint8).copy()).view(SOURCES[name])


def bits(x):
    """The bits of a tensor's elements."""
    return x.contiguous().view(torch.uint8).numpy().view(UINT[x.dtype.itemsize])


def around(values, dtype, uint):
    """Bits of the values and of their neighbours, both signs."""
    with np.errstate(all="ignore"):
        at = np.abs(values).astype(dtype).view(uint)
    near = np.concatenate([at, at + uint(1), at - uint(1)])
    return np.concatenate([near, near | uint(1 << (8 * uint().itemsize - 1))])


def every_finite():
    """All finite values of the types of 8 and 16 bits, ascending without repeats, for each type."""
    for name in TARGETS:
        width = SOURCES[name].itemsize
        if width <= 2:
            all_bits = np.arange(1 << (8 * width)).astype(UINT[width])
            values = tensor(name, all_bits).double().numpy()
            yield np.unique(np.abs(values[np.isfinite(values)]))


def hard_f32():
    """Every upper half with revealing lower halves; midpoints of narrower types; noise."""
    rng = np.random.default_rng(1)
    low = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    parts = [((np.arange(1 << 16, dtype=np.uint32) << 16)[:, None] | low).ravel()]
    for values in every_finite():
        over = values[-1] + (values[-1] - values[-2])
        ladder = np.append(values, over)
        parts.append(around((ladder[1:] + ladder[:-1]) / 2, np.float32, np.uint32))
    parts.append(rng.integers(0, 1 << 32, 1 << 17, dtype=np.uint32))
    return np.concatenate(parts)


def hard_f64():
    """Binary32's hard values, its midpoints, every upper quarter, and noise."""
    rng = np.random.default_rng(2)
    with np.errstate(all="ignore"):
        single = hard_f32().view(np.float32)
        single = single[: 1 << 19 : 3]
        next_up = np.nextafter(single, np.float32(np.inf)).astype(np.float64)
        middle = (single.astype(np.float64) + next_up) / 2
    upper = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
    parts = [around(single.astype(np.float64), np.float64, np.uint64), around(middle, np.float64, np.uint64)]
    parts += [upper | np.uint64(low) for low in (0, 1, 0x20000000, 0xFFFF_FFFF_FFFF)]
    parts.append(rng.integers(0, 1 << 64, 1 << 17, dtype=np.uint64))
    return np.concatenate(parts)


def hard(name):
    """Bits of the values that a type is tried with; all of them up to 16 bits."""
    width = SOURCES[name].itemsize
    if name == "BOOL":
        return np.array([0, 1], np.uint8)
    if width <= 2:
        return np.arange(1 << (8 * width)).astype(UINT[width])
    if name == "F32":
        return hard_f32()
    if name == "F64":
        return hard_f64()
    rng = np.random.default_rng(3)
    uint = UINT[width]
    parts = [rng.integers(0, 1 << (8 * width), 1 << 16, dtype=uint)]
    with np.errstate(all="ignore"):
        for shift in range(0, 8 * width, 4):
            base = uint(1 << shift)
            parts += [base + np.arange(600).astype(uint), base - np.arange(600).astype(uint)]
        # Halfway cases of 8, 11, 24 and 53 bits of precision, in every binade.
        for precision in (3, 4, 8, 11, 24, 53):
            for shift in range(8 * width - precision - 1):
                tops = (uint(1) << uint(precision)) | rng.integers(0, 1 << precision, 32, dtype=uint)
                middle = (tops << uint(shift + 1)) | (uint(1) << uint(shift))
                parts += [middle, middle + uint(1), middle - uint(1), uint(0) - middle]
    return np.concatenate(parts)


def full(folder):
    """Writes all values and results, and says which code torch runs."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in SOURCES:
        values = hard(source)
        values.tofile(folder / f"{source}.src")
        x = tensor(source, values)
        for target, dtype in TARGETS.items():
            bits(x.to(dtype)).tofile(folder / f"{source}.{target}")
    print(torch.__version__, torch.backends.cpu.get_cpu_capability())


def table():
    """Prints some dozens of values of each type with all results."""
    print("# Made by `oracle.py table`: source type, its bits, then the bits of")
    print("#", *TARGETS)
    for source in SOURCES:
        width = SOURCES[source].itemsize
        values = hard(source)
        if len(values) > 40:
            floating = [0x3C00, 0x3F80, 0x7C00, 0x7E01, 0x7F80, 0x7FC1, 0x0001, 0x43E8, 0x477F, 0x5F40]
            picks = [0, 1, (1 << (8 * width)) - 1, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1]
            picks += [v << max(0, 8 * width - 16) for v in floating if width > 1]
            picks += [int(v) for v in values[:: len(values) // 24]]
            values = np.unique(np.array(picks, dtype=UINT[width]))
        # Repeated to the width of any vector, so that no value is left to the scalar code of a tail.
        x = tensor(source, np.repeat(values, 64))
        columns = [bits(x.to(dtype))[::64] for dtype in TARGETS.values()]
        for row, value in enumerate(values):
            results = [f"{int(c[row]):0{2 * c.itemsize}x}" for c in columns]
            print(source, f"{int(value):0{2 * width}x}", *results)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if sys.argv[1] == "table":
        table()
    else:
        full(pathlib.Path(sys.argv[2]))
