"""State dicts for the tests, and what each layout makes of them."""

import math

import torch

# Element types of safetensors and torch that this torch can make.
DTYPES = [
    getattr(torch, name)
    for name in (
        "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 "
        "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2"
    ).split()
    if hasattr(torch, name)
]


def filled(shape, dtype, seed=0):
    """A tensor of random bits."""
    generator = torch.Generator().manual_seed(seed)
    width = torch.empty(0, dtype=dtype).element_size()
    count = math.prod(shape) * width
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (count,), generator=generator, dtype=torch.int64)
    return raw.to(torch.uint8).view(dtype).view(shape)


def every_dtype():
    """Tensors of every type and several shapes; scalars and empty ones too."""
    out = {}
    for i, dtype in enumerate(DTYPES):
        name = str(dtype).removeprefix("torch.")
        for shape in ((), (0, 3), (7,), (5, 8), (3, 2, 4), (130, 64)):
            if name.startswith("float4") and not shape:
                continue
            out[f"{name}.{'x'.join(map(str, shape)) or 'scalar'}"] = filled(shape, dtype, i)
    return out


def model_like(scale=1):
    """Names and odd shapes as of a small transformer."""
    shapes = {
        "embed.weight": (53 * scale, 16),
        "blocks.0.attn.q.weight": (16 * scale, 16),
        "blocks.0.attn.q.bias": (16,),
        "blocks.0.mlp.up.weight": (37, 16 * scale),
        "blocks.0.norm.weight": (7,),
        "head.bias": (1,),
        "rows": (3, 5),
    }
    dtypes = [torch.bfloat16, torch.float32, torch.float16]
    return {name: filled(shape, dtypes[i % 3], i) for i, (name, shape) in enumerate(shapes.items())}


def same(left, right):
    """Equal in type, shape and every bit."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    flat = lambda t: t.detach().contiguous().reshape(-1).view(torch.uint8)
    return torch.equal(flat(left), flat(right))


def fsdp2(tensor, rank, ranks):
    """torch.chunk of dimension 0; ranks behind the last chunk have no rows."""
    step = -(-tensor.shape[0] // ranks)
    return tensor[min(step * rank, tensor.shape[0]) : min(step * (rank + 1), tensor.shape[0])]


def zero3(tensor, rank, ranks):
    """A flat range of ceil(n / ranks) elements, filled up with zeros (DeepSpeed leaves them undefined)."""
    flat = tensor.reshape(-1)
    step = -(-flat.numel() // ranks)
    part = flat[min(step * rank, flat.numel()) : min(step * (rank + 1), flat.numel())]
    out = torch.zeros(step * part.element_size(), dtype=torch.uint8)
    out[: part.numel() * part.element_size()] = part.contiguous().view(torch.uint8)
    return out.view(tensor.dtype)


RULES = {"fsdp2": fsdp2, "zero3": zero3}
