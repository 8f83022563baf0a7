"""`fsdp1` against PyTorch: the local part of every flat parameter, its padding included."""

import itertools
import warnings

import proof
import packs

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

warnings.filterwarnings("ignore", category=FutureWarning)

CASES = list(itertools.product(
    (torch.float32, torch.bfloat16), (True, False), (None, torch.bfloat16, torch.float32),
))

OTHER = {torch.float32: torch.bfloat16, torch.bfloat16: torch.float32}


class Block(nn.Module):
    """A wrapped module with another one inside."""

    def __init__(self, dtype, inner=True):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(5, 3, dtype=dtype))
        self.b = nn.Parameter(torch.zeros(1, dtype=dtype))
        self.lin = nn.Linear(3, 7, dtype=dtype)
        if inner:
            self.attn = Inner(dtype)
        self.last = nn.Parameter(torch.zeros(3, dtype=dtype))


class Inner(nn.Module):
    """The module inside."""

    def __init__(self, dtype):
        super().__init__()
        self.q = nn.Linear(3, 5, dtype=dtype)


class Model(nn.Module):
    """Nested units, odd sizes, a tie, a buffer, a unit smaller than the world, one that is frozen and of
    another type, and an empty parameter. Frozen parameters among others PyTorch takes with `use_orig_params` only.
    """

    def __init__(self, dtype, use_orig):
        super().__init__()
        self.seven = nn.Parameter(torch.zeros(7, dtype=dtype))
        self.emb = nn.Embedding(11, 3, dtype=dtype)
        self.blocks = nn.ModuleList([Block(dtype), Block(OTHER[dtype], inner=False)])
        self.blocks[1].requires_grad_(False)
        self.ten = nn.Parameter(torch.zeros(10, dtype=dtype), requires_grad=not use_orig)
        self.none = nn.Parameter(torch.zeros(0, 4, dtype=dtype))
        self.big = nn.Parameter(torch.zeros(2_003, 5, dtype=dtype))
        self.head = nn.Linear(3, 11, bias=False, dtype=dtype)
        self.head.weight = self.emb.weight
        self.register_buffer("buf", torch.zeros(13))


UNITS = ("", "blocks.0", "blocks.0.attn", "blocks.1")


def plan(model, world, use_orig, mixed):
    # The order of `named_parameters`, which a file of safetensors does not keep.
    order = [name for name, _ in model.named_parameters()]
    text = f"""
        ranks = {world}
        layout = "fsdp1"
        replicate = ["buf"]
        order = {order!r}
        [fsdp1]
        units = ["blocks.*", "blocks.*.attn"]
        use_orig_params = {str(use_orig).lower()}
    """
    return text + (f'param_dtype = "{proof.DTYPES[mixed]}"\n' if mixed else "")


def work(rank, world, files):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for at, (dtype, use_orig, mixed) in enumerate(CASES):
        shards = packs.shard(files[at], rank)
        model = proof.fill(Model(dtype, use_orig))
        buffer = model.buf.clone()
        wrapped = FullyShardedDataParallel(
            model, use_orig_params=use_orig, device_id=torch.device("cpu"),
            auto_wrap_policy=ModuleWrapPolicy({Block, Inner}),
            mixed_precision=MixedPrecision(param_dtype=mixed) if mixed else None,
        )
        modules = {
            "": wrapped, "blocks.0": model.blocks[0], "blocks.1": model.blocks[1],
            "blocks.0.attn": model.blocks[0].module.attn,
        }
        for unit in UNITS:
            flat = modules[unit]._handle.flat_param
            members = {f"{unit}.{name}".lstrip(".") for name in flat._fqns}
            name = next(name for name in shards if name in members)
            # Both kinds of padding are PyTorch's own, so all of it is compared.
            proof.check(shards.pop(name), getattr(flat, "_local_shard", flat).detach())
        proof.check(shards.pop("buf"), buffer)
        assert not shards, list(shards)


def prove(folder):
    for world in proof.WORLDS:
        files = []
        for at, (dtype, use_orig, mixed) in enumerate(CASES):
            model = proof.fill(Model(dtype, use_orig))
            files.append(packs.convert(
                folder / f"fsdp1.{at}.{world}", proof.tensors(model),
                plan=plan(model, world, use_orig, mixed),
            ))
        tally = proof.ranks(world, work, files)
        proof.report("fsdp1", f"torch {torch.__version__}", "flat parameters and fill", world, tally)
