"""DeepSpeed ZeRO-3 and ZeRO-2 from a pack, compared with DeepSpeed's own loading."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import pytest

import ranks

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import wpack  # noqa: E402
from states import same  # noqa: E402


class Model(nn.Module):
    """Odd and one-element sizes, a tie, a frozen weight, a buffer; all of it counts in the output."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(31, 16)
        self.up = nn.Linear(16, 64)
        # Whole pages in bf16 too: what shares a page with a weight that is written counts as written.
        self.base = nn.Linear(64, 64, bias=False)
        self.down = nn.Linear(64, 16)
        self.odd = nn.Parameter(torch.linspace(-1, 1, 37))
        self.scale = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(16, 31, bias=False)
        self.head.weight = self.embed.weight
        self.base.weight.requires_grad_(False)
        self.register_buffer("shift", torch.full((16,), 0.5))

    def forward(self, x: Any) -> Any:
        h = self.embed(x)
        h = self.down(self.base(torch.tanh(self.up(h)))) * self.scale
        h = h + self.shift.to(h.dtype) + self.odd.sum()
        return self.head(h).float().pow(2).mean()


def load_deepspeed() -> Any:
    deepspeed = pytest.importorskip("deepspeed")
    # An optional kernel for reductions on CPU that would be compiled on first use.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    deepspeed.utils.logger.setLevel("ERROR")
    return deepspeed


def config(dtype: Any, **zero: Any) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": dtype == torch.bfloat16},
        # Small ones persist: embeddings are cut, biases are kept gathered.
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 50, **zero},
    }


def train(deepspeed: Any, model: Any, settings: dict[str, Any]) -> list[float]:
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(trained, lr=1e-2), config=settings)
    losses = []
    for _ in range(3):
        loss = engine(torch.arange(7) + deepspeed.comm.get_rank())
        engine.backward(loss)
        engine.step()
        losses.append(float(loss))
    engine.destroy()
    return losses


def share(model: Any) -> int:
    """Bytes of the real elements of this rank's partitions, by DeepSpeed's rule, and of buffers."""
    total = 0
    for parameter in model.parameters():
        step = math.ceil(parameter.ds_numel / parameter.ds_zero_partition_world_size)
        real = max(0, min(step, parameter.ds_numel - step * parameter.ds_zero_partition_rank))
        total += real * parameter.ds_tensor.element_size()
    return total + sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())


def compare(model: Any, stock: Any) -> None:
    """The real elements of every partition, bit for bit; buffers; ties."""
    for (name, mine), (_, theirs) in zip(model.named_parameters(), stock.named_parameters()):
        start = mine.ds_tensor.numel() * mine.ds_zero_partition_rank
        real = max(0, min(mine.ds_tensor.numel(), mine.ds_numel - start))
        assert mine.ds_shape == theirs.ds_shape and mine.requires_grad == theirs.requires_grad
        assert mine.ds_tensor.numel() == theirs.ds_tensor.numel(), name
        assert same(mine.ds_tensor[:real], theirs.ds_tensor[:real]), name
    for (name, mine), (_, theirs) in zip(model.named_buffers(), stock.named_buffers()):
        assert torch.equal(mine.float(), theirs.float()), name
    assert model.head.weight is model.embed.weight


def zero3(rank: int, world: int, packs: dict[str, Path], source: Path, remote: str) -> dict[str, Any]:
    from accelerate import init_empty_weights
    from wpack.integrations._pages import MappedPacks, unwritten
    from wpack.integrations.deepspeed import load_into_zero3, partition_from_pack

    deepspeed = load_deepspeed()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    full = torch.load(source)
    result: dict[str, Any] = {}
    for dtype in (torch.float32, torch.bfloat16):
        offload = {} if remote == "none" else {"offload_param": {"device": "cpu"}}
        settings = config(dtype, **offload)

        def empty() -> Any:
            with deepspeed.zero.Init(config_dict_or_path=settings, remote_device=remote):
                return Model()

        stock = empty()
        with deepspeed.zero.GatheredParameters(list(stock.parameters()), modifier_rank=0):
            if rank == 0:
                with torch.no_grad():
                    for name, parameter in stock.named_parameters():
                        parameter.copy_(full[name])
        stock.shift.copy_(full["shift"])
        for kind, pack in packs.items():
            model = empty()
            copied = load_into_zero3(model, pack)
            assert copied == share(model), (kind, copied, share(model))
            compare(model, stock)
            result[f"{dtype} {remote} {kind}"] = copied
        if remote == "none":
            mapping = empty()
            assert load_into_zero3(mapping, wpack.open(packs["replicate"]).shard(0, 1).state_dict()) == copied
            compare(mapping, stock)
        with init_empty_weights(include_buffers=False):
            bare = Model()
        bare.head.weight = bare.embed.weight
        partition_from_pack(bare, packs["zero3"], settings)
        compare(bare, stock)
        origins = MappedPacks()
        here = dtype == torch.float32
        for name, parameter in bare.named_parameters():
            assert (origins.origin(parameter.ds_tensor) is not None) == here, name
            assert not here or unwritten(parameter.ds_tensor), name
        frozen = bare.base.weight.ds_tensor.data_ptr()
        expected = train(deepspeed, stock, settings)
        assert train(deepspeed, model, settings) == expected
        # Buffers of zero.Init's context are bf16 there; 0.5 is the same in both.
        assert train(deepspeed, bare, settings) == expected
        assert bare.base.weight.ds_tensor.data_ptr() == frozen or not here
        assert not here or unwritten(bare.base.weight.ds_tensor), "what is frozen stays the file's"
        result[f"{dtype} {remote} losses"] = expected
    if world == 2:
        refuse(deepspeed, packs)
    return result


def refuse(deepspeed: Any, packs: dict[str, Path]) -> None:
    from wpack.integrations._refuse import QuantizedModelError
    from wpack.integrations.deepspeed import (
        ModelMismatchError, UnsupportedPartitionError, load_into_zero3, partition_from_pack,
    )  # fmt: skip

    settings = config(torch.float32)
    with deepspeed.zero.Init(config_dict_or_path=settings):
        model = Model()

    def refused(why: str, kind: type[Exception] = UnsupportedPartitionError, target: Any = model) -> None:
        with pytest.raises(kind, match=why):
            load_into_zero3(target, packs["replicate"])

    weight = model.up.weight
    for name, value, why in (
        ("ds_secondary_tensor", torch.ones(1), "zero_hpz_partition_size"),
        ("nvme_swapper", object(), "NVMe"),
        ("allreduce", False, "MoE"),
        ("ds_shape", torch.Size([2, 2]), "shape"),
    ):
        before = getattr(weight, name, None)
        setattr(weight, name, value)
        refused(why)
        if name == "allreduce":
            del weight.allreduce
        else:
            setattr(weight, name, before)
    weight.ds_tensor.ds_quant_scale = torch.ones(1)
    refused("quantised")
    del weight.ds_tensor.ds_quant_scale
    with deepspeed.zero.GatheredParameters([weight]):
        refused("gathered")
    weight.quant_state = object()
    refused("quantised", QuantizedModelError)
    del weight.quant_state
    with deepspeed.zero.Init(config_dict_or_path=settings):
        other = nn.ModuleDict({"up": nn.Linear(16, 64), "more": nn.Linear(2, 2)})
    refused("no tensor `more.weight`", ModelMismatchError, other)
    del other["more"]
    refused("no place for", ModelMismatchError, other)
    load_into_zero3(other, packs["replicate"], strict=False)
    for zero, why in (
        ({"zero_hpz_partition_size": 2}, "secondary partition"),
        ({"offload_param": {"device": "nvme", "nvme_path": "/nowhere"}}, "nvme"),
        ({"zero_quantized_nontrainable_weights": True}, "quantised"),
    ):
        with pytest.raises(UnsupportedPartitionError, match=why):
            partition_from_pack(Model(), packs["replicate"], config(torch.float32, **zero))
    with pytest.raises(UnsupportedPartitionError, match="meta device"):
        partition_from_pack(Model(), packs["replicate"], settings)


@pytest.mark.parametrize(("world", "remote"), [(2, "none"), (3, "cpu")])
def test_partitions_and_losses_are_those_of_deepspeed(convert: Any, tmp_path: Path, world: int, remote: str) -> None:
    load_deepspeed()
    torch.manual_seed(0)
    state = Model().state_dict()
    torch.save({k: v for k, v in state.items()}, tmp_path / "full.pt")
    packs = {
        "zero3": convert(tmp_path / "full.pt", "zero3", world, replicate="shift"),
        "replicate": convert(tmp_path / "full.pt", "replicate"),
        "zero3 of more ranks": convert(tmp_path / "full.pt", "zero3", 5, replicate="shift"),
        "fsdp2": convert(tmp_path / "full.pt", "fsdp2", world, replicate="shift"),
    }
    results = ranks.run(world, zero3, tmp_path, packs, tmp_path / "full.pt", remote)
    buffers = state["shift"].numel() * 4
    distinct = {id(p): p for p in Model().parameters()}.values()
    for key in results[0]:
        if key.endswith("losses"):
            assert len(set(results[0][key])) == 3
            continue
        width = 4 if "float32" in key else 2
        buffer = buffers * width // 4
        everyone = [result[key] - buffer for result in results]
        assert sum(everyone) == sum(p.numel() for p in distinct) * width, "all ranks together copy the model once"
        assert max(everyone) <= sum(math.ceil(p.numel() / world) for p in distinct) * width


def zero2(rank: int, world: int, pack: Path, source: Path) -> Any:
    from wpack.integrations._frozen import Guard
    from wpack.integrations._pages import MappedPacks, unwritten
    from wpack.integrations.deepspeed import UnsupportedPartitionError, load_masters

    deepspeed = load_deepspeed()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    guard = Guard()
    results = []
    for stage in (1, 2):
        settings = config(torch.bfloat16)
        settings["zero_optimization"] = {"stage": stage}
        stock = Model()
        stock.load_state_dict(torch.load(source))
        stock.to(torch.bfloat16)
        expected = train(deepspeed, stock, settings)
        guard.install()
        try:
            model = Model().to(torch.bfloat16)
            wpack.open(pack).shard(rank, world).load_into(model)
            assert train(deepspeed, model, settings) == expected
        finally:
            guard.uninstall()
        assert MappedPacks().origin(model.base.weight) is not None and unwritten(model.base.weight)
        assert not unwritten(model.up.weight) or MappedPacks().origin(model.up.weight) is None
        results.append(expected)
        again = Model().to(torch.bfloat16)
        wpack.open(pack).shard(rank, world).load_into(again)
        trained = [p for p in again.parameters() if p.requires_grad]
        engine, *_ = deepspeed.initialize(model=again, optimizer=torch.optim.AdamW(trained), config=settings)
        with pytest.raises(UnsupportedPartitionError, match="carries none"):
            load_masters(engine, pack)
        masters(engine, world)
        engine.destroy()
    return results


def masters(engine: Any, world: int) -> None:
    """Shards as a pack that carries masters gives them: the one whose rounding is the group's own is taken."""
    from wpack.integrations import deepspeed as adapter

    place = torch.distributed.get_rank()
    held = engine.optimizer.single_partition_of_fp32_groups[0]
    finer = (held.detach() + held.detach().abs() * 2**-12).clone()
    finer = torch.where(finer.to(torch.bfloat16).float() == held, finer, held)
    assert not torch.equal(finer, held)
    tensors = {"@stream.0.1@master": held.detach() + 1, "@stream.0.2@master": finer, "w": held}

    class Shard(dict):  # type: ignore[type-arg]
        get_tensor = dict.__getitem__

    class Pack:
        path = "masters.wpack"
        components = ("model",)

        def shard(self, rank: int, size: int, component: str) -> Any:
            assert (rank, size, component) == (place, world, "model")
            return Shard(tensors)

    original = adapter.opened
    adapter.opened = lambda pack, component: (Pack(), "model")  # type: ignore[assignment, return-value]
    try:
        assert adapter.load_masters(engine, "masters.wpack") == held.numel() * 4
    finally:
        adapter.opened = original
    assert torch.equal(engine.optimizer.single_partition_of_fp32_groups[0], finer)


def test_zero2_shares_frozen_weights_and_takes_masters(convert: Any, tmp_path: Path) -> None:
    load_deepspeed()
    torch.manual_seed(0)
    torch.save(Model().state_dict(), tmp_path / "full.pt")
    pack = convert(tmp_path / "full.pt", dtype="bf16")
    one, two = ranks.run(2, zero2, tmp_path, pack, tmp_path / "full.pt")
    assert len(one) == len(two) == 2
