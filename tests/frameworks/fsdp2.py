"""`fsdp2`, `hsdp` and `usp+fsdp2` against PyTorch: the local tensor of every parameter after `fully_shard`.

Sequence parallel cuts activations: its axis of the mesh is none that `fully_shard` is given, unless its
ranks are those that weights are sharded over.
"""

import proof
import packs

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

DTYPES = {"fp32": (torch.float32,), "bf16+fp32": (torch.bfloat16, torch.float32)}


def work(rank, world, axes, files):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", tuple(axes.values()), mesh_dim_names=tuple(axes))
    for mode, dtypes in DTYPES.items():
        shards = packs.shard(files[mode], rank)
        over = mesh["fsdp"] if {"sp", "fsdp"} <= set(axes) else mesh
        model = proof.odd(dtypes)
        fully_shard(model.lin, mesh=over)
        fully_shard(model, mesh=over)
        for name, parameter in model.named_parameters():
            local = parameter.to_local()
            proof.check(shards.pop(name), local, local.numel())
        for name, buffer in model.named_buffers():
            proof.check(shards.pop(name), buffer)
        assert not shards, list(shards)


def prove(folder):
    cases = [("fsdp2", {"fsdp": world}) for world in proof.WORLDS]
    cases += [("hsdp", {"dp_replicate": 2, "fsdp": size}) for size in (2, 3)]
    cases += [("usp+fsdp2", {"sp": world}) for world in proof.WORLDS]
    cases += [("usp+fsdp2", axes) for axes in ({"sp": 2, "fsdp": 2}, {"fsdp": 2, "sp": 2}, {"sp": 2, "fsdp": 3})]
    for layout, axes in cases:
        world = torch.Size(axes.values()).numel()
        mesh = ",".join(f"{name}={size}" for name, size in axes.items())
        files = {
            mode: packs.convert(
                folder / f"{layout}.{mode}.{world}", proof.tensors(proof.odd(dtypes)),
                # A checkpoint does not say that a floating tensor is a buffer.
                "--layout", layout, "--mesh", mesh, "--replicate", "buf",
            )
            for mode, dtypes in DTYPES.items()
        }
        tally = proof.ranks(world, work, axes, files)
        proof.report(layout, f"torch {torch.__version__}", f"fully_shard over {mesh}", world, tally)
