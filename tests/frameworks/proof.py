"""What every proof needs: models of awkward tensors, ranks as forked processes, and comparing bits."""

import itertools
import json
import os
import socket
import struct
import sys
import traceback
from dataclasses import dataclass

os.environ.update(
    CUDA_VISIBLE_DEVICES="",
    DS_ACCELERATOR="cpu",
    GLOO_SOCKET_IFNAME="lo",
    OMP_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false",
)

import torch
import torch._dynamo  # PyTorch imports it at first use: once here, not in every forked rank
from torch import nn

torch.set_num_threads(1)

WORLDS = (2, 3, 4)
DTYPES = {
    torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64",
    torch.float64: "F64", torch.uint8: "U8", torch.bool: "BOOL",
}


def noise(*shape, dtype=torch.float32, seed):
    """Random bits, so that any cast or rounding on the way shows."""
    generator = torch.Generator().manual_seed(seed)
    count = dtype.itemsize * torch.Size(shape).numel()
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator).view(dtype).view(shape)


class Odd(nn.Module):
    """Odd and one-element sizes, a tie, buffers, a frozen and an empty parameter.

    `dtypes` are given to its parameters in turn.
    """

    def __init__(self, dtypes=(torch.float32,)):
        super().__init__()
        turn = itertools.cycle(dtypes)

        def parameter(*shape):
            return nn.Parameter(torch.zeros(shape, dtype=next(turn)))

        self.one = parameter(1)
        self.seven = parameter(7)
        self.ten = parameter(10, 3)
        self.big = parameter(2_003, 5)
        self.deep = parameter(3, 5, 7, 2)
        self.frozen = parameter(9, 2)
        self.frozen.requires_grad_(False)
        self.none = parameter(0, 4)
        self.emb = nn.Embedding(11, 3, dtype=next(turn))
        self.head = nn.Linear(3, 11, bias=False)
        self.head.weight = self.emb.weight
        self.lin = nn.Linear(3, 5, dtype=next(turn))
        self.register_buffer("buf", torch.zeros(13))
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("ids", torch.arange(6).view(1, 6))


def fill(module):
    """Gives every floating tensor of a module its noise, the same in every process."""
    with torch.no_grad():
        for seed, tensor in enumerate([*module.parameters(), *module.buffers()]):
            if tensor.is_floating_point():
                tensor.copy_(noise(*tensor.shape, dtype=tensor.dtype, seed=seed))
    return module


def odd(dtypes):
    """An `Odd` of noise."""
    return fill(Odd(dtypes))


def tensors(module):
    """The module's own tensors by name, each tie once, as a checkpoint would hold them."""
    named = list(module.named_parameters()) + list(module.named_buffers())
    return {name: tensor.detach().clone() for name, tensor in named}


def raw(tensor):
    """The bytes of a tensor, row-major."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


@dataclass
class Tally:
    """What was compared: local tensors, and their elements."""

    tensors: int = 0
    elements: int = 0

    def add(self, tensors, elements):
        self.tensors += tensors
        self.elements += elements


# Of this process; `ranks` adds up those of all ranks.
COMPARED = Tally()


def check(shard, local, real=None):
    """A slice of a pack against the framework's local tensor.

    Shapes, types and every real element must agree. Fill is compared where `real` is None: it says that
    the framework writes its fill; otherwise fill must be what lies behind the first `real` elements.
    """
    COMPARED.add(1, local.numel() if real is None else real)
    name = shard.name
    assert shard.dtype == DTYPES[local.dtype], (name, shard.dtype, local.dtype)
    assert shard.shape == tuple(local.shape), (name, shard.shape, tuple(local.shape))
    got, want = shard.data, raw(local)
    assert len(got) == len(want), (name, len(got), len(want))
    if real is not None:
        size = local.element_size()
        filled = sum(count for _, count, _ in shard.fill)
        assert filled == local.numel() - real, (name, shard.fill, real)
        assert all(start >= real for start, _, _ in shard.fill), (name, shard.fill, real)
        assert not any(got[real * size:]), (name, "fill is not zero")
        got, want = got[: real * size], want[: real * size]
    assert got == want, (name, "elements differ")


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def ranks(world, work, *args):
    """Runs `work(rank, world, *args)` in `world` forked processes; gives what they compared together.

    Forked, because importing the frameworks is most of a proof's time.
    """
    import torch.distributed as dist

    port, children = _free_port(), []
    sys.stdout.flush()
    read, write = os.pipe()
    for rank in range(world):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.environ.update(
                    RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world),
                    LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                )
                work(rank, world, *args)
                if dist.is_initialized():
                    dist.barrier()
                os.write(write, COUNTS.pack(COMPARED.tensors, COMPARED.elements))
                code = 0
            except BaseException:  # the child must not return into the parent's stack
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    os.close(write)
    # A rank that fails leaves the others waiting for it: the first failure ends them all.
    failed, left = False, set(children)
    while left:
        child, status = os.waitpid(-1, 0)
        if child not in left:
            continue
        left.discard(child)
        if status and not failed:
            failed = True
            for other in left:
                os.kill(other, 9)
    counts = os.read(read, COUNTS.size * world)
    os.close(read)
    if failed:
        raise SystemExit(f"{work.__module__}: a rank of {world} failed")
    total = Tally()
    for tensors, elements in COUNTS.iter_unpack(counts):
        assert tensors, f"{work.__module__}: a rank of {world} compared nothing"
        total.add(tensors, elements)
    return total


# A Tally between processes.
COUNTS = struct.Struct("<QQ")


def report(layout, framework, what, world, tally):
    """One line of the table of proofs, and the same as JSON in the file that WPACK_PROOFS names."""
    line = f"{layout:<11} {framework + ' ' + what:<62} W={world}"
    print(f"{line}  {tally.tensors:>5} tensors, {tally.elements:>8} elements equal", flush=True)
    if path := os.environ.get("WPACK_PROOFS"):
        row = {"layout": layout, "framework": framework, "what": what, "world": world}
        with open(path, "a", encoding="utf-8") as rows:
            rows.write(json.dumps({**row, "tensors": tally.tensors, "elements": tally.elements}) + "\n")
