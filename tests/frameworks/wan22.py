"""Wan2.2's own `--dit_fsdp --t5_fsdp --ulysses_size` against PyTorch: the ready plan files of Wan2.2 on models
of its names and order, few blocks deep and a few elements wide, under FSDP1 as `shard_model` applies it.

`shard_model` of wan/distributed/fsdp.py wraps each block and the root over all ranks, with PyTorch's default
`use_orig_params=False` and bf16 as the type of the forward. Sequence parallel ranks are the same ranks.
"""

import warnings
from functools import partial
from pathlib import Path

import proof
import packs

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

warnings.filterwarnings("ignore", category=FutureWarning)

PLANS = Path(__file__).resolve().parents[2] / "fixtures/plans"
# Transformers of each plan file.
READY = {"wan2.2-ti2v-5b": ("dit",), "wan2.2-i2v-a14b": ("dit", "dit2")}
DIM, WIDE, BLOCKS = 6, 37, 3


class Scale(nn.Module):
    """A norm: one weight, and no bias unless asked for."""

    def __init__(self, size, bias=False):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        if bias:
            self.bias = nn.Parameter(torch.zeros(size))


class Attention(nn.Module):
    """Of the transformer: queries and keys are normed."""

    def __init__(self):
        super().__init__()
        for name in "qkvo":
            self.add_module(name, nn.Linear(DIM, DIM))
        self.norm_q, self.norm_k = Scale(DIM), Scale(DIM)


class Block(nn.Module):
    """Of the transformer."""

    def __init__(self):
        super().__init__()
        self.self_attn = Attention()
        self.norm3 = Scale(DIM, bias=True)
        self.cross_attn = Attention()
        self.ffn = nn.Sequential(nn.Linear(DIM, WIDE), nn.GELU(), nn.Linear(WIDE, DIM))
        self.modulation = nn.Parameter(torch.zeros(1, 6, DIM))


class Head(nn.Module):
    """Of the transformer."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(DIM, 5)
        self.modulation = nn.Parameter(torch.zeros(1, 2, DIM))


class Transformer(nn.Module):
    """WanModel's parameters; its rotary table is a plain attribute, no buffer."""

    def __init__(self):
        super().__init__()
        self.patch_embedding = nn.Conv3d(3, DIM, kernel_size=(1, 2, 2))
        self.text_embedding = nn.Sequential(nn.Linear(7, DIM), nn.GELU(), nn.Linear(DIM, DIM))
        self.time_embedding = nn.Sequential(nn.Linear(4, DIM), nn.SiLU(), nn.Linear(DIM, DIM))
        self.time_projection = nn.Sequential(nn.SiLU(), nn.Linear(DIM, 6 * DIM))
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = Head()


class EncoderBlock(nn.Module):
    """Of the text encoder: each has a table of relative positions."""

    def __init__(self):
        super().__init__()
        self.norm1 = Scale(DIM)
        self.attn = nn.Module()
        for name in "qkvo":
            self.attn.add_module(name, nn.Linear(DIM, DIM, bias=False))
        self.norm2 = Scale(DIM)
        self.ffn = nn.Module()
        self.ffn.gate = nn.Sequential(nn.Linear(DIM, WIDE, bias=False))
        self.ffn.fc1 = nn.Linear(DIM, WIDE, bias=False)
        self.ffn.fc2 = nn.Linear(WIDE, DIM, bias=False)
        self.pos_embedding = nn.Module()
        self.pos_embedding.embedding = nn.Embedding(8, 3)


class TextEncoder(nn.Module):
    """T5Encoder's parameters."""

    def __init__(self):
        super().__init__()
        self.token_embedding = nn.Embedding(19, DIM)
        self.blocks = nn.ModuleList(EncoderBlock() for _ in range(BLOCKS))
        self.norm = Scale(DIM)


def components(transformers):
    """The components by name, their weights as Wan2.2 loads them: frozen, in the types of its files."""
    for at, name in enumerate(transformers):
        yield name, filled(Transformer(), 1000 * at)
    yield "text_encoder", filled(TextEncoder().to(torch.bfloat16), 5000)
    # Whole on every rank, whatever it is made of.
    yield "vae", filled(nn.Sequential(nn.Conv3d(2, 3, 3), nn.Conv3d(3, 1, 1)), 9000)


def filled(module, seed):
    with torch.no_grad():
        for at, parameter in enumerate(module.parameters()):
            parameter.copy_(proof.noise(*parameter.shape, dtype=parameter.dtype, seed=seed + at))
    return module.eval().requires_grad_(False)


def sharded(model):
    return FullyShardedDataParallel(
        model,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda module: module in model.blocks),
        mixed_precision=MixedPrecision(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.float32),
        device_id=torch.device("cpu"),
    )


def work(rank, world, files):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for ready, transformers in READY.items():
        models = dict(components(transformers))
        assert sorted(models) == sorted(packs.components(files[ready]))
        for at, component in enumerate(packs.components(files[ready])):
            model, shards = models[component], packs.shard(files[ready], rank, at)
            if component == "vae":
                for name, parameter in model.named_parameters():
                    proof.check(shards.pop(name), parameter)
            else:
                wrapped = sharded(model)
                for path, unit in [("", wrapped), *((f"blocks.{i}.", model.blocks[i]) for i in range(BLOCKS))]:
                    flat = unit._handle.flat_param
                    # A slice is named for the first tensor of which the rank has a part.
                    members = {path + name for name in flat._fqns}
                    name = next(name for name in shards if name in members)
                    proof.check(shards.pop(name), getattr(flat, "_local_shard", flat))
            assert not shards, (component, list(shards))


def prove(folder):
    for world in proof.WORLDS:
        files = {}
        for ready, transformers in READY.items():
            inputs = []
            for component, model in components(transformers):
                # The files of Wan2.2: safetensors for the transformers, the others as torch.save writes them.
                path = folder / (component + (".safetensors" if component in transformers else ".pth"))
                (save_file if component in transformers else torch.save)(model.state_dict(), path)
                inputs.append(f"{component}={path}")
            files[ready] = packs.converted(
                folder / "wan.wpack", *inputs, "--plan", PLANS / f"{ready}.toml", "--mesh", f"sp={world}",
            )
        tally = proof.ranks(world, work, files)
        framework = f"torch {torch.__version__}"
        proof.report("usp+fsdp1", framework, "Wan2.2 shard_model, ready plan files", world, tally)
