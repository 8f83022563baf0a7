"""`tp` and `tp+fsdp2` against PyTorch: local tensors after `parallelize_module`, and `fully_shard` on top."""

import proof
import packs

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

SIZES = ((8, 6), (7, 5), (5, 3), (10, 10), (9, 2), (1, 3), (2, 9))


class Model(nn.Module):
    """Linear layers and embeddings of even and odd sizes; `SIZES` are (out, in)."""

    def __init__(self, dtype, sizes):
        super().__init__()
        for out, into in sizes:
            for kind in ("col", "row"):
                self.add_module(f"{kind}_{out}_{into}", nn.Linear(into, out, dtype=dtype))
        self.emb_col = nn.Embedding(11, 9, dtype=dtype)
        self.emb_row = nn.Embedding(11, 9, dtype=dtype)
        self.norm = nn.LayerNorm(5, dtype=dtype)
        self.plain = nn.Linear(4, 6, dtype=dtype)


RULES = """
    default_style = "replicate"
    [[rule]]
    match = "col_*"
    style = "colwise"
    [[rule]]
    match = "row_*"
    style = "rowwise"
    [[rule]]
    match = "emb_col.*"
    style = "embedding_colwise"
    [[rule]]
    match = "emb_row.*"
    style = "embedding_rowwise"
"""


def parallel(model, mesh):
    plan = {"emb_col": ColwiseParallel(), "emb_row": RowwiseParallel(), "norm": SequenceParallel()}
    for name, _ in model.named_children():
        if name.startswith(("col_", "row_")):
            plan[name] = ColwiseParallel() if name.startswith("col_") else RowwiseParallel()
    return parallelize_module(model, mesh, plan)


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def work(rank, world, axes, sizes, files):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", tuple(axes.values()), mesh_dim_names=tuple(axes))
    for dtype in (torch.float32, torch.bfloat16):
        shards = packs.shard(files[dtype], rank)
        model = parallel(proof.fill(Model(dtype, sizes)), mesh["tp"])
        if "fsdp" in axes:
            fully_shard(model, mesh=mesh["fsdp"])
        for name, parameter in model.named_parameters():
            proof.check(shards.pop(name), local(parameter))
        assert not shards, list(shards)


def prove(folder):
    cases = [("tp", {"tp": world}, SIZES) for world in proof.WORLDS]
    # PyTorch cannot shard on where tensor parallel leaves a rank nothing.
    cases += [("tp+fsdp2", {"fsdp": 2, "tp": 2}, [size for size in SIZES if min(size) > 1])]
    for layout, axes, sizes in cases:
        world = torch.Size(axes.values()).numel()
        mesh = ",".join(f"{name}={size}" for name, size in axes.items())
        files = {
            dtype: packs.convert(
                folder / f"{layout}.{world}.{proof.DTYPES[dtype]}",
                proof.tensors(proof.fill(Model(dtype, sizes))),
                plan=f'mesh = "{mesh}"\nlayout = "{layout}"\n{RULES}',
            )
            for dtype in (torch.float32, torch.bfloat16)
        }
        tally = proof.ranks(world, work, axes, sizes, files)
        proof.report(layout, f"torch {torch.__version__}", f"parallelize_module over {mesh}", world, tally)
