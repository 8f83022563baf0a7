"""State dicts into models."""

import warnings

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import wpack
from states import same


class Tied(nn.Module):
    """An embedding that is also the head, a buffer, and a buffer that checkpoints leave out."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(53, 16)
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 53, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("table", torch.arange(5.0))
        self.register_buffer("cache", torch.ones(3), persistent=False)

    def forward(self, x):
        return self.head(self.norm(self.embed(x)))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)
        self.b = nn.Linear(3, 2)
        self.register_buffer("c", torch.arange(3))


@pytest.fixture
def plain(convert):
    torch.manual_seed(1)
    model = Plain()
    return model, wpack.open(convert(model.state_dict())).shard()


@pytest.mark.parametrize("assign", [True, False])
def test_a_model_takes_the_tensors(plain, assign):
    source, shard = plain
    model = Plain()
    result = shard.load_into(model, assign=assign)
    assert not result.missing_keys and not result.unexpected_keys
    assert all(same(value, source.state_dict()[name]) for name, value in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())


def test_a_model_on_the_meta_device_becomes_real(plain):
    source, shard = plain
    with torch.device("meta"):
        model = Plain()
    shard.load_into(model)
    x = torch.ones(2, 4)
    assert torch.equal(model.b(model.a(x)), source.b(source.a(x)))
    model.b(model.a(x)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert not same(model.a.weight, source.a.weight)
    # A second load starts from the file, not from what training made of the first.
    again = Plain()
    shard.load_into(again)
    assert same(again.a.weight, source.a.weight)


@pytest.mark.parametrize("meta", [True, False])
@pytest.mark.parametrize("names", [("embed.weight", "head.weight"), ("embed.weight",), ("head.weight",)])
@pytest.mark.parametrize("assign", [True, False])
def test_ties_stay_ties(convert, tmp_path, meta, names, assign):
    if meta and not assign:
        pytest.skip("nothing to copy into")
    source = Tied()
    state = {k: v for k, v in source.state_dict().items() if k in names or "weight" not in k or "norm" in k}
    # torch.save keeps a tie as one storage under two names; safetensors would refuse it.
    torch.save(state, tmp_path / "tied.pt")
    shard = wpack.open(convert(tmp_path / "tied.pt")).shard()
    with torch.device("meta" if meta else "cpu"):
        model = Tied()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = shard.load_into(model, assign=assign)
    assert not result.missing_keys and not result.unexpected_keys
    assert model.head.weight is model.embed.weight
    assert same(model.head.weight, source.head.weight)
    assert ("cache" in str([w.message for w in caught])) == meta


def test_ties_share_one_storage(convert, tmp_path):
    torch.save(Tied().state_dict(), tmp_path / "tied.pt")
    shard = wpack.open(convert(tmp_path / "tied.pt")).shard()
    for options in ({}, {"eager": True}):
        state = shard.state_dict(**options, progress=False)
        one, two = state["embed.weight"], state["head.weight"]
        assert one is not two and one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr()
        cast = wpack_cast(shard, options)
        assert cast["embed.weight"].untyped_storage().data_ptr() == cast["head.weight"].untyped_storage().data_ptr()


def wpack_cast(shard, options):
    return shard.state_dict(dtype=torch.float64, **options, progress=False)


def in_file_order(model, shard):
    """torch reports unexpected names in the order of the state dict."""
    state = model.state_dict()
    return {name: state[name] for name in shard.keys()}


def without(model, name):
    delattr(model, name)
    return model


@pytest.mark.parametrize(
    "change",
    [
        lambda m: without(m, "b"),
        lambda m: m.add_module("d", nn.Linear(2, 2)) or m,
        lambda m: setattr(m, "a", nn.Linear(4, 5)) or m,
        lambda m: m.register_buffer("e", torch.ones(1)) or m,
    ],
    ids=["unexpected", "missing", "shape", "buffer"],
)
def test_strict_messages_are_those_of_torch(plain, change):
    source, shard = plain
    with pytest.raises(RuntimeError) as expected:
        change(Plain()).load_state_dict(in_file_order(source, shard), strict=True, assign=True)
    with pytest.raises(wpack.errors.LoadIntoError) as raised:
        shard.load_into(change(Plain()))
    assert raised.value.message == str(expected.value)
    assert isinstance(raised.value, RuntimeError)


def test_not_strict_reports(plain):
    source, shard = plain
    model = without(Plain(), "b")
    model.add_module("d", nn.Linear(2, 2))
    expected = without(Plain(), "b")
    expected.add_module("d", nn.Linear(2, 2))
    assert shard.load_into(model, strict=False) == expected.load_state_dict(
        in_file_order(source, shard), strict=False
    )
    assert same(model.a.weight, source.a.weight)


def test_components_as_modules(convert, tmp_path):
    from safetensors.torch import save_file

    one, two = nn.Linear(3, 2), nn.Linear(2, 4)
    save_file(one.state_dict(), tmp_path / "one.safetensors")
    save_file(two.state_dict(), tmp_path / "two.safetensors")
    out = tmp_path / "both.wpack"
    wpack.convert({"dit": tmp_path / "one.safetensors", "vae": tmp_path / "two.safetensors"}, out, layout="replicate", progress=False)
    pack = wpack.open(out)
    assert pack.components == ("dit", "vae")
    assert sorted(pack.shard().keys()) == ["dit.bias", "dit.weight", "vae.bias", "vae.weight"]
    both = nn.ModuleDict({"dit": nn.Linear(3, 2), "vae": nn.Linear(2, 4)})
    pack.shard().load_into(both)
    assert same(both["vae"].weight, two.weight)
    alone = nn.Linear(2, 4)
    pack.shard(component="vae").load_into(alone)
    assert same(alone.weight, two.weight)
    assert sorted(pack.shard().state_dict(components="dit")) == ["bias", "weight"]
    with pytest.raises(wpack.errors.UnknownComponentError, match="unet"):
        pack.shard(component="unet")
