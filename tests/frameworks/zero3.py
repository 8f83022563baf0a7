"""`zero3` against DeepSpeed: `param.ds_tensor` of every parameter, after `zero.Init` in both its forms."""

import importlib

import proof
import packs

import torch
import torch.distributed as dist


def load_deepspeed():
    import deepspeed

    # An optional kernel for reductions on CPU that would be compiled on first use.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    deepspeed.utils.logger.setLevel("ERROR")
    return deepspeed


def version(deepspeed):
    return tuple(int(part) for part in deepspeed.__version__.split(".")[:2])


MODES = {
    # Given dtypes, and how the module gets under ZeRO.
    "Init(module=), fp32": ((torch.float32,), "module"),
    "Init(module=), bf16+fp32": ((torch.bfloat16, torch.float32), "module"),
    "with Init(), bf16": ((torch.bfloat16,), "context"),
    "with Init(), fp32": ((torch.float32,), "context"),
}


def work(rank, world, files):
    deepspeed = load_deepspeed()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    for mode, (dtypes, form) in MODES.items():
        shards = packs.shard(files[mode], rank)
        full = proof.odd(dtypes)
        values = proof.tensors(full)
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 20},
            "bf16": {"enabled": dtypes == (torch.bfloat16,)},
        }
        if form == "module":
            model = full
            deepspeed.zero.Init(module=model, config_dict_or_path=config, dtype=torch.float32)
        else:
            with deepspeed.zero.Init(config_dict_or_path=config):
                model = proof.Odd(dtypes)
            with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
                if rank == 0:
                    with torch.no_grad():
                        for name, parameter in model.named_parameters():
                            parameter.copy_(values[name])
        for name, parameter in model.named_parameters():
            length = parameter.ds_tensor.numel()
            real = max(0, min(length, parameter.ds_numel - length * rank))
            proof.check(shards.pop(name), parameter.ds_tensor, real)
        # The context casts floating buffers too; what a checkpoint holds is what the module registered.
        for name, buffer in full.named_buffers():
            proof.check(shards.pop(name), values[name])
            assert buffer.shape == values[name].shape
        assert not shards, list(shards)


def prove(folder):
    deepspeed = load_deepspeed()
    for world in proof.WORLDS:
        files = {}
        for at, (mode, (dtypes, _)) in enumerate(MODES.items()):
            values = proof.tensors(proof.odd(dtypes))
            files[mode] = packs.convert(
                folder / f"zero3.{at}.{world}", values,
                # A checkpoint does not say that a floating tensor is a buffer.
                "--layout", "zero3", "--ranks", world, "--replicate", "buf",
            )
        tally = proof.ranks(world, work, files)
        proof.report("zero3", f"deepspeed {deepspeed.__version__}", "zero.Init ds_tensor", world, tally)
