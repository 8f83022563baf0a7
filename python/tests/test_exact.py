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


FACTS = """
order = "checkpoint"
default_style = "replicate"
fsdp1 = { units = ["blocks.*"], use_orig_params = true }
zero = { master = true }
stages = { layers = "blocks", first = ["embed.*"], last = ["head.*", "rows"] }
[[rule]]
match = "*.up.weight"
style = "colwise"
[[rule]]
match = "*.q.weight"
style = "rowwise"
"""
TARGETS = {
    "tp": "tp=3", "hsdp": "dp_replicate=2,fsdp=2", "fsdp1": "fsdp=3", "zero2": "dp=2", "pp": "pp=2", "usp": "sp=2",
    "tp+fsdp2": "fsdp=2,tp=2", "pp+fsdp2": "pp=2,fsdp=2", "usp+fsdp2": "sp=3",
}  # fmt: skip


@pytest.fixture(scope="module")
def packs(tmp_path_factory):
    """A plan file and a pack for each layout; one type throughout, as flat groups need it."""
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("layouts")
    state = {name: tensor.to(torch.bfloat16) for name, tensor in model_like().items()}
    save_file(state, folder / "model.safetensors")
    made = {}
    for layout, mesh in {**TARGETS, "replicate": "", "zero3": "dp=3"}.items():
        plan = folder / f"{layout}.toml"
        plan.write_text(f'layout = "{layout}"\n' + (f'mesh = "{mesh}"\n' if mesh else "") + FACTS)
        wpack.convert(folder / "model.safetensors", folder / f"{layout}.wpack", plan=plan, progress=False)
        made[layout] = plan, folder / f"{layout}.wpack"
    return made


def held(shard):
    """What a shard holds, in order; a flat group's name has a number in it that says nothing."""
    return [(name.partition("@stream")[0], tensor) for name, tensor in shard.state_dict(progress=False).items()]


@pytest.mark.parametrize("source", ["replicate", "zero3", "tp+fsdp2", "fsdp1", "pp"])
@pytest.mark.parametrize("target", TARGETS)
def test_any_layout_opens_as_any_other(packs, source, target):
    plan, direct = packs[target]
    direct, pack = wpack.open(direct), wpack.open(packs[source][1])
    mesh = dict((axis, int(size)) for axis, _, size in (part.partition("=") for part in TARGETS[target].split(",")))
    for rank in range(direct.world_size or 1):
        wanted = held(direct.shard(rank, direct.world_size or 1))
        cost = pack.explain(rank, layout=target, mesh=mesh)
        assert cost.mapped_bytes + cost.gathered_bytes == sum(tensor.nbytes for _, tensor in wanted)
        assert (cost.command is None) == (cost.gathered_bytes == 0)
        for shard in pack.shard(rank, layout=target, mesh=mesh), pack.shard(rank, plan=plan), pack.shard(rank, plan=str(plan)):
            found = held(shard)
            assert [name for name, _ in found] == [name for name, _ in wanted]
            assert all(same(one, two) for (_, one), (_, two) in zip(found, wanted))


def test_a_target_that_the_pack_knows_too_little_of(convert, packs, tmp_path):
    pack = wpack.open(convert({"w": torch.zeros(4, 4)}))
    with pytest.raises(wpack.errors.NoRuleError, match="wpack convert CHECKPOINT -o OUT.wpack --layout tp"):
        pack.shard(0, 2, layout="tp")
    with pytest.raises(wpack.errors.OrderUnknownError, match="--layout fsdp1 --ranks 2"):
        pack.shard(0, 2, layout="fsdp1")
    with pytest.raises(wpack.errors.RanksDisagreeError):
        pack.shard(0, 3, layout="zero3", mesh="dp=2")
    with pytest.raises(wpack.errors.MeshSyntaxError):
        pack.shard(0, 3, layout="zero3", mesh="dp")
    plan = tmp_path / "plan.toml"
    plan.write_text('layout = "zero3"\nranks = 2\ntransform = { dtype = "bf16" }\n')
    with pytest.raises(wpack.errors.PlanTransformsError):
        pack.shard(0, plan=plan)
    plan.write_text("layout = 1")
    with pytest.raises(wpack.errors.PlanFileError):
        pack.shard(0, plan=plan)
    # A plan takes the world size along, and flags take the place of what it says.
    assert wpack.open(packs["replicate"][1]).shard(0, plan=packs["tp"][0]).world_size == 3
    assert wpack.open(packs["replicate"][1]).shard(1, mesh={"tp": 2}, plan=packs["tp"][0]).world_size == 2


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
