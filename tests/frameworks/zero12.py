"""`zero1` and `zero2` against DeepSpeed: the optimizer's fp32 master partition of every rank."""

import itertools

import proof
import packs
from zero3 import load_deepspeed, version

import torch
from torch import nn

def cases():
    """Stage, type of the weights, `round_robin_gradients`, and `parameter_alignment` where there is one."""
    aligned = (False, True) if version(load_deepspeed()) >= (0, 19) else (False,)
    return list(itertools.product((1, 2), (torch.float32, torch.bfloat16), (False, True), aligned))


def groups(model):
    """Two optimizer groups, as trainers make them for weight decay."""
    named = list(model.named_parameters())
    if version(load_deepspeed()) < (0, 19):
        # They do not start with an empty parameter in a group.
        named = [(name, parameter) for name, parameter in named if parameter.numel()]
    return (
        [parameter for name, parameter in named if not name.endswith("bias")],
        [parameter for name, parameter in named if name.endswith("bias")],
    )


def build(dtype):
    return proof.odd((dtype,))


def work(rank, world, files):
    deepspeed = load_deepspeed()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    for at, (stage, dtype, round_robin, aligned) in enumerate(cases()):
        shards = packs.shard(files[at], rank)
        model = build(dtype)
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        first, second = groups(model)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        members = [{names[id(p)] for p in group if p.requires_grad and p.numel()} for group in (first, second)]
        optimizer = torch.optim.AdamW([{"params": first}, {"params": second, "weight_decay": 0.0}])
        engine, zero, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={
            "train_micro_batch_size_per_gpu": 1,
            "bf16": {"enabled": dtype == torch.bfloat16},
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {
                "stage": stage, "round_robin_gradients": round_robin, "overlap_comm": False,
                **({"parameter_alignment": True} if aligned else {}),
            },
        })
        for group, of in enumerate(members):
            name = next(key for key in shards if isinstance(key, tuple) and key[1] in of)
            master = zero.single_partition_of_fp32_groups[group]
            # DeepSpeed writes its padding, so all of it is compared.
            proof.check(shards.pop(name), master)
        for name, parameter in model.named_parameters():
            proof.check(shards.pop(name), parameter)
        # Releases before 0.19 cast buffers too; what a checkpoint holds is what the module registered.
        for name, buffer in buffers.items():
            proof.check(shards.pop(name), buffer)
        assert not shards, list(shards)
        engine.destroy()


def prove(folder):
    deepspeed = load_deepspeed()
    for world in proof.WORLDS:
        files = []
        for at, (stage, dtype, round_robin, aligned) in enumerate(cases()):
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
        tally = proof.ranks(world, work, files)
        framework = f"deepspeed {deepspeed.__version__}"
        proof.report("zero1, zero2", framework, "weights, fp32 masters and fill", world, tally)
