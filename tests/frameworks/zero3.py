"""`zero3` against DeepSpeed: `param.ds_tensor` of every parameter, after `zero.Init` in both its forms."""

import importlib
from contextlib import contextmanager

import proof
import packs

import torch
from torch import nn


def load_deepspeed():
    import deepspeed

    # An optional kernel for reductions on CPU that would be compiled on first use.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    deepspeed.utils.logger.setLevel("ERROR")
    return deepspeed


def version(deepspeed):
    return tuple(int(part) for part in deepspeed.__version__.split(".")[:2])


class Given(proof.Odd):
    """An `Odd` whose own parameters are given values before `zero.Init` cuts them."""

    def __init__(self, dtypes, values):
        super().__init__(dtypes)
        take(self, "", values)


def take(module, prefix, values):
    with torch.no_grad():
        for name, parameter in module.named_parameters(recurse=False):
            parameter.copy_(values.get(prefix + name, torch.zeros(())))


@contextmanager
def layers_start_from(values):
    """The same for its layers, each of which is cut as soon as it is made. A gather to write the values
    afterwards would tell less: on CPU that of DeepSpeed 0.16 now and then loses what was written."""
    made = iter(("emb.", "head.", "lin."))
    own = {cls: cls.reset_parameters for cls in (nn.Embedding, nn.Linear)}
    for cls in own:
        cls.reset_parameters = lambda layer: take(layer, next(made), values)
    try:
        yield
        assert next(made, None) is None
    finally:
        for cls, reset in own.items():
            cls.reset_parameters = reset


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
            with layers_start_from(values), deepspeed.zero.Init(config_dict_or_path=config):
                model = Given(dtypes, values)
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
