"""Every bit, for every layout, dtype and golden pack."""

import pathlib

import pytest

torch = pytest.importorskip("torch")

import wpack
from states import RULES, every_dtype, model_like, same

WAYS = {
    "mapped": {},
    "eager": {"eager": True},
    "grouped": {"eager": True, "group_bytes": 1 << 20},
    "unverified": {"eager": True, "verify": False},
    "ahead": {"prefetch": "ahead"},
    "node": {"prefetch": "node"},
    "checked": {"verify": True},
}


def check(tensors, wanted):
    assert sorted(tensors) == sorted(wanted)
    wrong = [name for name, tensor in tensors.items() if not same(tensor, wanted[name])]
    assert not wrong


@pytest.mark.parametrize("way", WAYS)
def test_every_dtype(convert, way):
    state = every_dtype()
    shard = wpack.open(convert(state)).shard()
    check(shard.state_dict(**WAYS[way], progress=False), state)


def test_every_dtype_one_by_one(convert):
    state = every_dtype()
    shard = wpack.open(convert(state)).shard()
    check({name: shard.get_tensor(name) for name in shard}, state)
    for name, tensor in state.items():
        part = shard.get_slice(name)
        assert part.get_shape() == list(tensor.shape)
        if tensor.dim() and not str(tensor.dtype).startswith("torch.float4"):
            assert same(part[1:3], tensor[1:3])


@pytest.mark.parametrize("layout", RULES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("way", ["mapped", "eager"])
def test_layouts(convert, layout, ranks, way):
    state = model_like()
    pack = wpack.open(convert(state, layout, ranks))
    for rank in range(ranks):
        wanted = {name: RULES[layout](tensor, rank, ranks) for name, tensor in state.items()}
        check(pack.shard(rank, ranks).state_dict(**WAYS[way], progress=False), wanted)


@pytest.mark.parametrize("layout", ["replicate", "usp"])
def test_layouts_that_fit_any_number_of_ranks(convert, layout):
    state = model_like()
    pack = wpack.open(convert(state, layout))
    assert pack.world_size is None and pack.mesh is None
    for rank in (0, 3, 999):
        check(pack.shard(rank, 1000).state_dict(), state)


@pytest.mark.parametrize("layout", RULES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_a_replicated_pack_opens_for_any_world_size(convert, layout, ranks):
    state = model_like()
    pack = wpack.open(convert(state))
    for rank in range(ranks):
        wanted = {name: RULES[layout](tensor, rank, ranks) for name, tensor in state.items()}
        check(pack.shard(rank, ranks, layout=layout).state_dict(), wanted)


@pytest.mark.parametrize("made, opened", [("fsdp2", "fsdp2"), ("zero3", "zero3"), ("fsdp2", "zero3"), ("zero3", "replicate")])
def test_a_sharded_pack_opens_for_another_world_size(convert, made, opened):
    state = model_like()
    pack = wpack.open(convert(state, made, 4))
    for rank in range(3):
        rule = RULES.get(opened, lambda tensor, rank, ranks: tensor)
        wanted = {name: rule(tensor, rank, 3) for name, tensor in state.items()}
        check(pack.shard(rank, 3, layout=opened).state_dict(), wanted)


def test_casts_as_torch_does(convert):
    state = every_dtype()
    shard = wpack.open(convert({k: v for k, v in state.items() if v.dtype in (torch.float32, torch.int32)})).shard()
    for name, tensor in shard.state_dict(dtype=torch.bfloat16).items():
        assert same(tensor, state[name].to(torch.bfloat16) if state[name].is_floating_point() else state[name])


GOLDEN = sorted((pathlib.Path(__file__).parents[2] / "fixtures").rglob("*.wpack"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_golden_packs(path):
    """Mapped, eager and numpy views agree on every rank of every golden pack."""
    try:
        pack = wpack.open(path)
    except wpack.WpackError:
        pytest.skip("a pack that must be refused; the Rust tests say with which error")
    for rank in range(pack.world_size or 1):
        shard = pack.shard(rank, pack.world_size or 1)
        shard.verify(progress=False)
        mapped = {}
        for name in shard:
            try:
                mapped[name] = shard.get_tensor(name)
            except wpack.errors.UnsupportedDTypeError:
                continue
            assert shard.view(name).bytes() == bytes(mapped[name].reshape(-1).view(torch.uint8).numpy())
        if len(mapped) == len(shard):
            eager = shard.state_dict(eager=True, progress=False)
            assert all(same(eager[name], mapped[name]) for name in mapped)
