"""The command's functions, and errors as exceptions."""

import inspect
import pathlib
import pickle
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import wpack
from states import filled, model_like, same
from wpack import errors


@pytest.fixture
def source(tmp_path):
    from safetensors.torch import save_file

    save_file(model_like(), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_convert_inspect_plan_verify(source, tmp_path):
    out = tmp_path / "model.wpack"
    planned = wpack.plan(source, layout="fsdp2", ranks=2)
    made = wpack.convert(
        source, out, layout="fsdp2", mesh={"fsdp": 2}, dtype=torch.bfloat16, include="blocks.*", exclude=["*.bias"],
        strip_prefix="blocks.", add_prefix="layers.", rename={r"attn\.q": "query"}, threads=1, align=65536, progress=False,
    )  # fmt: skip
    assert made["command"] == "convert" and planned["command"] == "plan"
    pack = wpack.open(out)
    assert sorted(pack.shard(0).keys()) == ["layers.0.mlp.up.weight", "layers.0.norm.weight", "layers.0.query.weight"]
    assert all(t.dtype == torch.bfloat16 for t in pack.shard(0).state_dict().values())
    assert wpack.inspect(out, tensors="*")["command"] == "inspect"
    assert wpack.verify(out, progress=False)["ok"] is True
    assert wpack.verify(out, rank=1, threads=1, progress=False)["rank"] == 1
    assert pack.shard(1).verify(progress=False).bytes > 0


def test_every_option_is_a_keyword():
    """What a function lacks, its caller cannot say. Reports are JSON, and a plan as TOML is for people."""
    for function in (wpack.convert, wpack.plan, wpack.inspect, wpack.verify):
        name = function.__name__
        shown = subprocess.run(
            [sys.executable, "-c", "import sys; from wpack._command import main; sys.exit(main())", name, "--help"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        options = set(re.findall(r"^\s+(?:-\w, )?--([\w-]+)", shown.stdout, re.MULTILINE))
        options -= {"help", "json", "quiet", "verbose", "no-progress", *({"plan"} if name == "inspect" else ())}
        keywords = {{"components": "component"}.get(one, one).replace("_", "-") for one in inspect.signature(function).parameters}
        keywords -= {"inputs", "pack", "progress"}
        assert keywords == options, name


def test_masters_and_preflight(source, tmp_path):
    order, plan, out = tmp_path / "order.txt", tmp_path / "plan.toml", tmp_path / "model.wpack"
    names = [name for name, tensor in model_like().items() if tensor.is_floating_point() and tensor.dim()]
    order.write_text("\n".join(names))
    options = {"layout": "zero2", "ranks": 2, "order": order, "with_master": True, "dtype": "float32", "output_limit": 1 << 30}
    planned = wpack.plan(source, **options, emit=plan, processes=4, trainable="*", host_memory=1 << 30)
    assert planned["fit"]["processes"] == 4
    wpack.convert(source, out, **options, progress=False)
    wpack.convert(source, tmp_path / "again.wpack", plan=plan, progress=False)
    assert (tmp_path / "again.wpack").read_bytes() == out.read_bytes()
    assert wpack.inspect(out, processes=2)["fit"]["processes"] == 2
    assert wpack.verify(out, against=source, progress=False)["ok"] is True
    with pytest.raises(errors.UsageError, match="order"):
        wpack.convert(source, tmp_path / "none.wpack", layout="zero3", ranks=2, order="checkpoint", progress=False)


def test_the_pack_says_what_it_is(source, tmp_path):
    out = tmp_path / "model.wpack"
    digest = wpack.convert(source, out, layout="zero3", ranks=3, progress=False)["output"]["digest"]
    with wpack.open(str(out)) as pack:
        assert pack.digest == digest
        assert (pack.layout, pack.world_size, list(pack.mesh.values())) == ("zero3", 3, [3])
        assert pack.components == ("model",) and pack.layouts == {"model": "zero3"}
        assert pack.nbytes == out.stat().st_size and pack.files == [] and pack.file("config.json") is None
        assert pack.metadata() == {} and "zero3" in repr(pack)
        shard = pack.shard(2)
        assert (shard.rank, shard.world_size, len(shard)) == (2, 3, 7) and "rows" in shard and 3 not in shard
        assert "rank=2" in repr(shard)


def test_the_rank_of_the_environment(source, tmp_path, monkeypatch):
    out = tmp_path / "model.wpack"
    wpack.convert(source, out, layout="fsdp2", ranks=2, progress=False)
    pack = wpack.open(out)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(errors.RankError, match="2 ranks"):
        pack.shard()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert pack.shard().rank == 1
    for rank, size in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(errors.RankError):
            pack.shard(rank, size)


def test_explain(source, tmp_path):
    out = tmp_path / "model.wpack"
    wpack.convert(source, out, layout="fsdp2", ranks=2, progress=False)
    fits = wpack.open(out).explain(0, 2)
    assert fits.fits and fits.gathered_bytes == 0 and fits.command is None
    other = wpack.open(out).explain(1, 3)
    assert not other.fits and "--layout fsdp2 --ranks 3" in other.command
    assert other.command in str(other)


def test_verify_finds_damage(source, tmp_path):
    out = tmp_path / "model.wpack"
    wpack.convert(source, out, layout="replicate", progress=False)
    offset = wpack.open(out)._open.extents[0][1]
    with open(out, "r+b") as file:
        file.seek(offset + 3)
        byte = file.read(1)
        file.seek(offset + 3)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(errors.DamagedError) as caught:
        wpack.verify(out, progress=False)
    assert caught.value.report["ok"] is False and caught.value.hint
    shard = wpack.open(out).shard()
    with pytest.raises(errors.DamagedError) as caught:
        shard.verify(progress=False)
    assert caught.value.damage
    with pytest.raises(errors.ChecksumMismatchError):
        shard.state_dict(eager=True, progress=False)
    with pytest.raises(errors.DamagedError):
        shard.state_dict(verify=True, progress=False)
    shard.state_dict(eager=True, verify=False, progress=False)


def flip(path, offset):
    """Flips one bit of a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("made, opened", [("replicate", "zero3"), ("replicate", "fsdp2"), ("fsdp2", "zero3"), ("zero3", "fsdp2")])
def test_other_ranks_and_layouts_check_what_they_read(source, tmp_path, made, opened):
    out = tmp_path / "model.wpack"
    wpack.convert(source, out, layout=made, ranks=None if made == "replicate" else 2, progress=False)
    pack = wpack.open(out)
    # More ranks than the pack was made for: what is checked follows the slices, not the number of the rank.
    shards = [pack.shard(rank, 3, opened) for rank in range(3)]
    sound = [shard.state_dict(eager=True, progress=False) for shard in shards]
    assert all(shard.stats.verified_bytes >= shard.stats.bytes - 64 for shard in shards)
    assert all(shard.verify(progress=False).blocks > 0 for shard in shards)
    for _, offset, *_ in pack._open.extents:
        flip(out, offset)
    for shard, state in zip(shards, sound, strict=True):
        with pytest.raises(errors.ChecksumMismatchError):
            shard.state_dict(eager=True, progress=False)
        with pytest.raises(errors.DamagedError) as caught:
            shard.verify(progress=False)
        assert caught.value.damage and caught.value.hint
        with pytest.raises(errors.DamagedError):
            shard.state_dict(verify=True, progress=False)
        name = next(name for name, tensor in state.items() if tensor.numel())
        with pytest.raises(errors.ChecksumMismatchError):
            shard.state_dict(out={name: torch.empty_like(state[name])}, progress=False)
        unchecked = shard.state_dict(eager=True, verify=False, progress=False)
        assert unchecked.keys() == state.keys() and shard.stats.verified_bytes == 0
    for _, offset, *_ in pack._open.extents:
        flip(out, offset)
    for shard, state in zip(shards, sound, strict=True):
        again = shard.state_dict(eager=True, progress=False)
        assert all(same(again[name], state[name]) for name in state)


def test_only_the_blocks_that_are_read_are_checked(tmp_path):
    from safetensors.torch import save_file

    # Two tensors, two blocks: damage in one does not keep the other from loading.
    block = 8 << 20
    state = {name: filled((2, block // 4), torch.bfloat16, seed) for seed, name in enumerate(("a", "b"))}
    save_file(state, tmp_path / "model.safetensors")
    out = tmp_path / "model.wpack"
    wpack.convert(tmp_path / "model.safetensors", out, layout="replicate", progress=False)
    pack = wpack.open(out)
    flip(out, pack._open.extents[0][1] + 5)
    shard = wpack.open(out).shard(1, 2, "fsdp2")
    into = {"b": torch.zeros((1, block // 4), dtype=torch.bfloat16)}
    shard.state_dict(out=into, progress=False)
    assert same(into["b"], state["b"][1:]) and shard.stats.verified_bytes == block
    with pytest.raises(errors.ChecksumMismatchError):
        shard.state_dict(out={"a": torch.zeros_like(into["b"])}, progress=False)


def test_verify_against(source, tmp_path):
    from safetensors.torch import save_file

    out = tmp_path / "model.wpack"
    wpack.convert(source, out, layout="replicate", progress=False)
    assert wpack.verify(out, against=source, progress=False)["ok"] is True
    state = model_like()
    state["rows"] = filled((3, 5), state["rows"].dtype, 99)
    save_file(state, tmp_path / "other.safetensors")
    with pytest.raises(errors.DifferentError):
        wpack.verify(out, against=tmp_path / "other.safetensors", progress=False)


@pytest.mark.parametrize(
    "act, kind",
    [
        (lambda path: wpack.open(path / "none.wpack"), "IoError"),
        (lambda path: wpack.open(path / "text.wpack"), "WpackError"),
        (lambda path: wpack.convert(path / "none.safetensors", path / "x.wpack", layout="replicate"), "WpackError"),
        (lambda path: wpack.convert(path / "model.safetensors", path / "x.wpack", layout="nonsense"), "UnknownLayoutError"),
        (lambda path: wpack.convert(path / "model.safetensors", path / "x.wpack", layout="zero3"), "RanksMissingError"),
        (lambda path: wpack.convert(path / "model.safetensors", path / "text.wpack", layout="replicate"), "TargetExistsError"),
        (lambda path: wpack.inspect(path / "model.safetensors", rank=-1), "UsageError"),
    ],
)
def test_every_error_has_a_class(source, tmp_path, act, kind):
    (tmp_path / "text.wpack").write_text("no pack at all")
    with pytest.raises(wpack.WpackError) as caught:
        act(tmp_path)
    error = caught.value
    assert isinstance(error, getattr(errors, kind)), (type(error), error.code)
    assert error.code and error.message
    assert pickle.loads(pickle.dumps(error)).code == error.code


def test_unknown_names(source, tmp_path):
    out = tmp_path / "model.wpack"
    wpack.convert(source, out, layout="replicate", progress=False)
    shard = wpack.open(out).shard()
    for act in (shard.get_tensor, shard.get_slice, shard.view, shard.__getitem__):
        with pytest.raises(errors.UnknownTensorError, match="nothing"):
            act("nothing")
    with pytest.raises(KeyError):
        shard["nothing"]
    with pytest.raises(ValueError, match="prefetch"):
        shard.state_dict(prefetch="sometimes")


def test_components_that_give_one_name(tmp_path):
    from safetensors.torch import save_file

    save_file({"b.c": torch.zeros(2)}, tmp_path / "outer.safetensors")
    save_file({"c": torch.ones(2)}, tmp_path / "inner.safetensors")
    out = tmp_path / "model.wpack"
    parts = {"a": tmp_path / "outer.safetensors", "a.b": tmp_path / "inner.safetensors"}
    wpack.convert(parts, out, layout="replicate", progress=False)
    pack = wpack.open(out)
    with pytest.raises(errors.StateDictCollisionError, match="`a` and `a.b` both give the name `a.b.c`"):
        pack.shard()
    assert pack.shard(component="a").get_tensor("b.c").tolist() == [0, 0]
    assert pack.shard(component="a.b").get_tensor("c").tolist() == [1, 1]


RUST = pathlib.Path(__file__).parents[2]
# What the command can report; faults of single blocks are text of a DamagedError, and have no class.
CODES = ["checkpoint/src/error/advice.rs", *(f"{crate}/src/error.rs" for crate in ("cli", "convert", "format", "loader", "plan"))]


@pytest.mark.parametrize("path", CODES)
def test_every_code_has_a_class_of_its_own(path):
    """By the sources of the crates: a code without a class would come as the bare base class."""
    body = re.search(r"fn code\(&self\) -> &'static str \{(.*?)\n    \}\n", (RUST / path).read_text(), re.DOTALL)
    codes = re.findall(r'"([a-z0-9-]+)"', body[1])
    assert len(codes) > 5
    for code in codes:
        kind = type(errors.from_code(code, "facts"))
        assert kind is not wpack.WpackError and kind.code == code, code
        assert getattr(errors, kind.__name__) is kind, f"two classes are called {kind.__name__}"


def test_no_two_classes_have_one_name():
    kinds = wpack.WpackError.__subclasses__()
    names = [kind.__name__ for kind in kinds if kind.__module__ == "wpack.errors"]
    assert len(names) > 90 and len(set(names)) == len(names)
    for kind in kinds:
        if kind.__module__ == "wpack.errors":
            assert getattr(errors, kind.__name__) is kind


def test_an_unknown_code_is_the_base_class():
    error = errors.from_code("never-heard-of", "facts", "do this")
    assert type(error) is wpack.WpackError and error.code == "never-heard-of"
    assert str(error) == "facts\nhint: do this"


def test_out(source, tmp_path):
    out = tmp_path / "model.wpack"
    wpack.convert(source, out, layout="replicate", progress=False)
    shard, state = wpack.open(out).shard(), model_like()
    mine = {name: torch.zeros_like(state[name]) for name in ("rows", "head.bias")}
    found = shard.state_dict(out=mine, progress=False)
    assert sorted(found) == sorted(mine) and all(found[name] is mine[name] for name in mine)
    assert all(same(mine[name], state[name]) for name in mine)
    rows = state["rows"]
    for wrong in (rows[:2].clone(), rows.to(torch.float64), torch.zeros(5, 3, dtype=rows.dtype).t()):
        with pytest.raises(errors.OutputTensorError):
            shard.state_dict(out={"rows": wrong}, progress=False)
    with pytest.raises(errors.UnknownTensorError):
        shard.state_dict(out={"nothing": rows}, progress=False)


def test_out_and_ties(tmp_path):
    tied = torch.arange(6.0)
    torch.save({"one": tied, "two": tied}, tmp_path / "tied.pt")
    wpack.convert(tmp_path / "tied.pt", tmp_path / "tied.wpack", layout="replicate", progress=False)
    shard = wpack.open(tmp_path / "tied.wpack").shard()
    mine = torch.zeros(6)
    assert shard.state_dict(out={"two": mine}, progress=False)["two"] is mine and same(mine, tied)
    with pytest.raises(errors.OutputTensorError, match="a tie of it"):
        shard.state_dict(out={"one": torch.zeros(6), "two": torch.zeros(6)}, progress=False)


def test_groups_share_allocations(source, tmp_path):
    out = tmp_path / "model.wpack"
    wpack.convert(source, out, layout="replicate", progress=False)
    shard, state = wpack.open(out).shard(), model_like()

    def storages(group_bytes):
        found = shard.state_dict(eager=True, group_bytes=group_bytes, progress=False)
        assert all(same(found[name], state[name]) for name in state)
        assert all(tensor.storage_offset() * tensor.element_size() % 512 == 0 for tensor in found.values())
        return len({tensor.untyped_storage().data_ptr() for tensor in found.values()})

    assert (storages(None), storages(1 << 20)) == (len(state), 1)
    assert 1 < storages(2048) < len(state)


def test_meta(source, tmp_path):
    out = tmp_path / "model.wpack"
    wpack.convert(source, out, layout="replicate", progress=False)
    found = wpack.open(out).shard().state_dict("meta")
    assert all(t.is_meta and t.shape == model_like()[name].shape for name, t in found.items())


def test_the_command(source, run, tmp_path):
    code = "import sys; from wpack._command import main; sys.argv = ['wpack'] + sys.argv[1:]; raise SystemExit(main())"
    done = run(code, "inspect", source, check=False)
    assert done.returncode == 0 and "rows" in done.stdout or "tensors" in done.stdout
    assert run(code, "--version", check=False).stdout.split()[1] == wpack.__version__
    done = run(code, "inspect", tmp_path / "none", check=False)
    assert done.returncode == 1 and "error:" in done.stderr
    assert run(code, "inspect", "--what", check=False).returncode == 2
