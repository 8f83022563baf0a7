"""FSDP2, HSDP, tensor parallelism and FSDP1 from a pack, compared with PyTorch's own sharding of the full model."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ranks

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
from torch import nn  # noqa: E402

import wpack  # noqa: E402
from states import same  # noqa: E402

try:
    from torch.distributed.fsdp import fully_shard

    TRAINS_ON_CPU = True
except ImportError:  # torch 2.5, whose FSDP2 shards everywhere and trains on CUDA alone
    from torch.distributed._composable.fsdp import fully_shard

    TRAINS_ON_CPU = False


class Block(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(nn.Module):
    """Rows that no number of ranks divides, fewer rows than ranks, a tie, a frozen weight, two buffers."""

    def __init__(self, width: int = 12, inner: int = 37, cast: Any = torch.float32) -> None:
        super().__init__()
        self.embed = nn.Embedding(31, width)
        self.blocks = nn.ModuleList([Block(width, inner), Block(width, inner)])
        self.few = nn.Parameter(torch.linspace(-1, 1, 2))
        self.head = nn.Linear(width, 31, bias=False)
        self.head.weight = self.embed.weight
        self.blocks[1].up.weight.requires_grad_(False)
        self.register_buffer("shift", torch.full((width,), 0.5))
        self.register_buffer("cache", torch.full((1,), 2.0), persistent=False)
        self.cast = cast

    def forward(self, x: Any) -> Any:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return (self.head(h + self.shift.to(h.dtype)) * self.cache.to(h.dtype)).float().pow(2).mean() + self.few.float().sum()


def filled(seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    model = Model(**options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3)
    return model


def on_meta(**options: Any) -> Any:
    from accelerate import init_empty_weights

    with init_empty_weights(include_buffers=False):
        model = Model(**options)
    model.head.weight = model.embed.weight
    return model


def shard(model: Any, mesh: Any) -> Any:
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def parallel(model: Any, mesh: Any) -> Any:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan = {f"blocks.{i}.up": ColwiseParallel() for i in range(2)}
    return parallelize_module(model, mesh, plan | {f"blocks.{i}.down": RowwiseParallel() for i in range(2)})


def step(model: Any) -> list[float]:
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2, foreach=False)
    losses = []
    for _ in range(2):
        loss = model(torch.arange(7))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


class Largest(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """The largest memory that any operation made: storages of the pack's mapping apart."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        plain = (torch.Tensor, nn.Parameter)
        given = {t.untyped_storage().data_ptr() for t in args if type(t) in plain and not t.is_meta}
        if type(out) in plain and not out.is_meta:
            if out.untyped_storage().data_ptr() not in given:
                self.elements = max(self.elements, out.untyped_storage().nbytes() // out.element_size())
        return out


def equal(model: Any, stock: Any) -> None:
    from torch.distributed.tensor import DTensor

    for (name, mine), (other, theirs) in zip(
        model.named_parameters(remove_duplicate=False), stock.named_parameters(remove_duplicate=False)
    ):
        assert name == other and type(mine) is type(theirs) and mine.requires_grad == theirs.requires_grad, name
        if isinstance(theirs, DTensor):
            assert mine.placements == theirs.placements and mine.shape == theirs.shape, name
            assert mine.stride() == theirs.stride(), name
            mine, theirs = mine.to_local(), theirs.to_local()
        assert same(mine, theirs), name
    for (name, mine), (_, theirs) in zip(model.named_buffers(), stock.named_buffers()):
        assert same(mine, theirs), name
    assert model.head.weight is model.embed.weight


def dtensors(rank: int, world: int, packs: dict[str, Path], even: Path) -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from wpack.integrations import tensor_parallel
    from wpack.integrations._pages import MappedPacks, unwritten
    from wpack.integrations.fsdp import load_into

    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
    result: dict[str, Any] = {}
    for kind, pack in packs.items():
        stock = shard(filled(), mesh)
        model = shard(on_meta(), mesh)
        watch = Largest()
        with watch:
            load_into(model, pack, mesh)
        equal(model, stock)
        origins, mapped = MappedPacks(), 0
        for name, parameter in model.named_parameters():
            local = parameter.to_local()
            if kind != "of more ranks" and parameter.shape[0] % world == 0:
                assert origins.origin(local) is not None and unwritten(local), (kind, name)
                mapped += local.numel()
        result[f"{kind} mapped"] = mapped
        if kind != "of more ranks":
            rows = max(-(-p.shape[0] // world) * p[0].numel() for p in filled().parameters())
            assert watch.elements <= max(rows, 12), f"{watch.elements} elements at once, a shard has {rows}"
        if TRAINS_ON_CPU:
            result[f"{kind} losses"] = step(model)
            assert result[f"{kind} losses"] == step(stock)
    if world == 2:
        # 36 columns over two ranks, rows of fp32: each way of cutting is met.
        sizes = {"width": 12, "inner": 36}
        model, stock = parallel(on_meta(**sizes), mesh), parallel(filled(**sizes), mesh)
        tensor_parallel.load_into(model, f"{even}#model")
        equal(model, stock)
        assert step(model) == step(stock)
        refuse(mesh, packs["replicate"])
    return result


def refuse(mesh: Any, pack: Path) -> None:
    from torch.distributed.tensor import DTensor, Partial
    from wpack.integrations._refuse import QuantizedModelError
    from wpack.integrations.fsdp import UnsupportedPlacementError, load_into

    model = shard(on_meta(inner=38), mesh)
    with pytest.raises(UnsupportedPlacementError, match="shape"):
        load_into(model, pack)
    model = shard(on_meta(), mesh)
    model.more = nn.Parameter(torch.ones(3))
    with pytest.raises(wpack.errors.LoadIntoError, match="more"):
        load_into(model, pack)
    model.quant_state = None
    model.more.quant_state = object()
    with pytest.raises(QuantizedModelError, match="more"):
        load_into(model, pack)
    model = on_meta()
    model.few = nn.Parameter(DTensor.from_local(torch.ones(2), mesh, [Partial()], run_check=False))
    with pytest.raises(UnsupportedPlacementError, match="Partial"):
        load_into(model, pack)


def grids(rank: int, world: int, pack: Path, even: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from wpack.integrations.fsdp import load_into

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model, stock = shard(on_meta(), mesh), shard(filled(), mesh)
    load_into(model, pack, mesh)
    equal(model, stock)
    if TRAINS_ON_CPU:
        assert step(model) == step(stock)
    # Tensor parallelism first, then rows of what it left: strided shards.
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    sizes = {"width": 12, "inner": 36}
    model = shard(parallel(on_meta(**sizes), mesh["tp"]), mesh["dp"])
    stock = shard(parallel(filled(**sizes), mesh["tp"]), mesh["dp"])
    load_into(model, even, mesh)
    equal(model, stock)
    assert "_Strided" in repr(model.blocks[0].up.weight.placements[0])


def flat(rank: int, world: int, pack: Path) -> list[int]:
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy
    from wpack.integrations.fsdp1 import FlatParameterError, empty_parameters, load_into_fsdp1, shard_model

    warnings.filterwarnings("ignore", category=FutureWarning)
    cpu, copied = torch.device("cpu"), []

    def wrap(model: Any, original: bool, mixed: Any, **options: Any) -> Any:
        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.blocks),
            mixed_precision=mixed and MixedPrecision(param_dtype=mixed, reduce_dtype=torch.float32, buffer_dtype=torch.float32),
            use_orig_params=original,
            device_id=cpu,
            sync_module_states=False,
            **options,
        )

    def compare(model: Any, stock: Any) -> None:
        for module, other in zip(FullyShardedDataParallel.fsdp_modules(model), FullyShardedDataParallel.fsdp_modules(stock)):
            mine, theirs = module._handle.flat_param, other._handle.flat_param
            # PyTorch's padding too: 42 between parameters, zeros at the end.
            assert same(getattr(mine, "_local_shard", mine), getattr(theirs, "_local_shard", theirs))
        for (name, mine), (_, theirs) in zip(model.named_buffers(), stock.named_buffers()):
            assert same(mine, theirs), name

    def ready(dtype: Any) -> Any:
        # One unit has one type and, without use_orig_params, one requires_grad.
        return filled().to(dtype).requires_grad_(True)

    for original in (False, True):
        for mixed in (None, torch.bfloat16):
            stock = wrap(ready(torch.float32), original, mixed)
            model = wrap(on_meta().requires_grad_(True), original, mixed, param_init_fn=empty_parameters(cpu))
            copied.append(load_into_fsdp1(model, pack))
            compare(model, stock)
            assert step(model) == step(stock)
    wan = shard_model(on_meta().requires_grad_(True), pack, cpu)
    compare(wan, wrap(ready(torch.float32), False, torch.bfloat16))
    with pytest.raises(FlatParameterError, match="FullyShardedDataParallel"):
        load_into_fsdp1(on_meta(), pack)
    with FullyShardedDataParallel.summon_full_params(wan), pytest.raises(FlatParameterError, match="gathered"):
        load_into_fsdp1(wan, pack)
    other = on_meta(inner=38).requires_grad_(True)
    with pytest.raises(FlatParameterError, match="shape"):
        shard_model(other, pack, cpu)
    return copied


@pytest.fixture
def packs(convert: Any, tmp_path: Path) -> dict[str, Any]:
    # torch.save keeps ties.
    torch.save(filled().state_dict(), tmp_path / "full.pt")
    return {
        str(world): {
            "replicate": convert(tmp_path / "full.pt"),
            "fsdp2": convert(tmp_path / "full.pt", "fsdp2", world, replicate="shift"),
            "of more ranks": convert(tmp_path / "full.pt", "fsdp2", 5, replicate="shift"),
        }
        for world in (2, 3)
    }


@pytest.fixture
def even(convert: Any, tmp_path: Path) -> Any:
    torch.save(filled(width=12, inner=36).state_dict(), tmp_path / "even.pt")
    return convert(tmp_path / "even.pt")


@pytest.mark.parametrize("world", [2, 3])
def test_dtensors_are_those_of_torch(packs: dict[str, Any], even: Path, tmp_path: Path, world: int) -> None:
    results = ranks.run(world, dtensors, tmp_path, packs[str(world)], even)
    for kind in ("replicate", "fsdp2"):
        assert all(result[f"{kind} mapped"] > 0 for result in results)
        if TRAINS_ON_CPU:
            assert len({str(result[f"{kind} losses"]) for result in results}) == 1


def test_hsdp_and_fsdp_over_tensor_parallelism(packs: dict[str, Any], even: Path, tmp_path: Path) -> None:
    ranks.run(4, grids, tmp_path, packs["2"]["replicate"], even)


def test_flat_parameters_are_those_of_torch(packs: dict[str, Any], tmp_path: Path) -> None:
    results = ranks.run(3, flat, tmp_path, packs["3"]["replicate"])
    buffer, whole = 12 * 4, sum(p.numel() for p in filled().parameters()) * 4
    for copied in zip(*results):
        assert sum(one - buffer for one in copied) == whole, "all ranks together copy the model once"
