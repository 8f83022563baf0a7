"""`zero1` and `zero2` against DeepSpeed: the optimizer's fp32 master partition of every rank."""

import itertools

import proof
import packs
from zero3 import load_deepspeed

import torch
from torch import nn

CASES = list(itertools.product((1, 2), (torch.float32, torch.bfloat16), (False, True), (False, True)))


def groups(model):
    """Two optimizer groups, as trainers make them for weight decay."""
    named = list(model.named_parameters())
    return (
        [parameter for name, parameter in named if not name.endswith("bias")],
        [parameter for name, parameter in named if name.endswith("bias")],
    )


def build(dtype):
    return proof.odd((dtype,))


def work(rank, world, files):
    deepspeed = load_deepspeed()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    count = 0
    for at, (stage, dtype, round_robin, aligned) in enumerate(CASES):
        shards = packs.shard(files[at], rank)
        model = build(dtype)
        values = proof.tensors(model)
        first, second = groups(model)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        members = [{names[id(p)] for p in group if p.requires_grad and p.numel()} for group in (first, second)]
        optimizer = torch.optim.AdamW([{"params": first}, {"params": second, "weight_decay": 0.0}])
        engine, zero, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={
            "train_micro_batch_size_per_gpu": 1,
            "bf16": {"enabled": dtype == torch.bfloat16},
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {
                "stage": stage, "round_robin_gradients": round_robin,
                "parameter_alignment": aligned, "overlap_comm": False,
            },
        })
        for group, of in enumerate(members):
            name = next(key for key in shards if isinstance(key, tuple) and key[1] in of)
            master = zero.single_partition_of_fp32_groups[group]
            # DeepSpeed writes its padding, so all of it is compared.
            proof.check(shards.pop(name), master)
            count += 1
        for name, value in values.items():
            proof.check(shards.pop(name), value)
            count += 1
        assert not shards, list(shards)
        engine.destroy()
    return count


def prove(folder):
    deepspeed = load_deepspeed()
    for world in proof.WORLDS:
        files = []
        for at, (stage, dtype, round_robin, aligned) in enumerate(CASES):
            model = build(dtype)
            order = [name for name, _ in model.named_parameters()]
            files.append(packs.convert(
                folder / f"zero12.{at}.{world}", proof.tensors(model), plan=f"""
                    ranks = {world}
                    layout = "zero{stage}"
                    replicate = ["buf"]
                    order = {order!r}
                    frozen = ["frozen"]
                    [zero]
                    master = true
                    groups = [["*.weight", "one", "seven", "ten", "big", "deep"], ["*"]]
                    round_robin_gradients = {str(round_robin).lower()}
                    parameter_alignment = {str(aligned).lower()}
                """,
            ))
        count = proof.ranks(world, work, files)
        what = f"deepspeed {deepspeed.__version__} weights, fp32 masters and fill"
        proof.report("zero1, zero2", what, world, count)
