"""Plan files read off models: what is written, and that the program reads it."""

from __future__ import annotations

import fnmatch
import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
tomllib = pytest.importorskip("tomllib")
from torch import nn  # noqa: E402

import wpack  # noqa: E402
from wpack.errors import RulesError, UsageError  # noqa: E402


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 12)
        self.down = nn.Linear(12, 8)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight
        self.ids = nn.Parameter(torch.arange(3), requires_grad=False)
        self.register_buffer("table", torch.ones(5))
        self.register_buffer("count", torch.ones((), dtype=torch.int64))
        self.register_buffer("cache", torch.ones(5), persistent=False)
        self.embed.weight.requires_grad_(False)


def read(model: Any, **options: Any) -> dict[str, Any]:
    return tomllib.loads(wpack.plan_from_model(model, **options))


@pytest.fixture
def model() -> Any:
    with torch.device("meta"):
        made = Model()
    made.head.weight = made.embed.weight
    return made


class TestTorch:
    def test_buffers_parameters_and_ties(self, model: Any) -> None:
        plan = read(model, layout="fsdp2", mesh={"dp_replicate": 2, "fsdp": 2})
        assert plan == {"mesh": "dp_replicate=2,fsdp=2", "layout": "fsdp2", "replicate": ["table"], "shard": ["ids"]}
        assert "# One parameter: embed.weight, head.weight" in wpack.plan_from_model(model)

    @pytest.mark.parametrize("units", [["blocks.*"], [Block], ["Block"], ["blocks.0", "blocks.1"]])
    def test_units_of_fsdp1(self, model: Any, units: Any) -> None:
        plan = read(model, layout="fsdp1", ranks=2, units=units, use_orig_params=True, param_dtype=torch.bfloat16)
        assert plan["fsdp1"] == {"units": ["blocks.*"], "use_orig_params": True, "param_dtype": "BF16"}
        assert plan["order"] == [name for name, _ in model.named_parameters()]
        assert read(model, layout="fsdp1", units=["blocks.0"])["fsdp1"]["units"] == ["blocks.0"]

    def test_optimizer_groups(self, model: Any) -> None:
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        groups = [[n for n, _ in named if n.endswith("bias")], [n for n, _ in named if n.endswith("weight")]]
        optimizer = torch.optim.SGD([{"params": [dict(named)[n] for n in group]} for group in groups], lr=1)
        plan = read(model, layout="zero2", ranks=2, optimizer=optimizer, master=True, round_robin_gradients=True)
        assert plan["zero"] == {
            "master": True, "groups": groups, "round_robin_gradients": True, "parameter_alignment": False,
        }  # fmt: skip
        assert plan["frozen"] == ["embed.weight", "ids"] or sorted(plan["frozen"]) == ["embed.weight", "ids"]
        with pytest.raises(RulesError, match="group 0 holds 1"):
            read(model, layout="zero2", master=True, optimizer=torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1))

    def test_styles_of_parallelize_module(self, model: Any) -> None:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel

        styles = {"blocks.*.up": ColwiseParallel(), "blocks.1.down": RowwiseParallel(), "embed": RowwiseParallel()}
        plan = read(model, layout="tp", ranks=2, tp_plan={**styles, "head": SequenceParallel()})
        assert plan["default_style"] == "replicate"
        found = {name: first(plan["rule"], name) for name, _ in model.named_parameters()}
        assert found["blocks.0.up.weight"] == found["blocks.1.up.bias"] == "colwise"
        assert found["blocks.1.down.weight"] == "rowwise" and found["blocks.0.down.weight"] is None
        assert found["embed.weight"] == "embedding_rowwise"
        with pytest.raises(RulesError, match="object"):
            read(model, layout="tp", tp_plan={"embed": object()})

    def test_a_glob_that_would_match_more_is_helped_out(self) -> None:
        inner = nn.ModuleDict({"experts": nn.ModuleList([nn.ModuleDict({"mlp": nn.Linear(2, 2)})]), "mlp": nn.Linear(2, 2)})
        model = nn.ModuleDict({"layers": nn.ModuleList([inner])})
        plan = read(model, layout="tp", tp_plan={"layers.*.mlp": "colwise"})
        assert first(plan["rule"], "layers.0.mlp.weight") == "colwise"
        assert first(plan["rule"], "layers.0.experts.0.mlp.weight") == "replicate"

    def test_a_section_of_a_component(self, model: Any) -> None:
        plan = read(model, component="dit", layout="fsdp1", ranks=4, units=["blocks.*"], dtype=torch.bfloat16)
        assert plan["ranks"] == 4 and "layout" not in plan
        dit = plan["component"]["dit"]
        assert dit["layout"] == "fsdp1" and dit["transform"] == {"dtype": "BF16"}
        assert dit["fsdp1"]["units"] == ["blocks.*"]

    def test_what_a_model_does_not_say_is_refused(self, model: Any, tmp_path: Path) -> None:
        for options, why in (
            ({"layout": "tp"}, "no tp plan"),
            ({"layout": "fsdp1"}, "FSDP's units"),
            ({"layout": "fsdp1", "units": ["layers.*"]}, "no module is the unit"),
            ({"layout": "pp"}, "pipeline plan"),
        ):
            with pytest.raises(RulesError, match=why):
                wpack.plan_from_model(model, **options)
        with pytest.raises(UsageError, match="no configuration"):
            wpack.plan_from_model(tmp_path)
        with pytest.raises(UsageError, match="int"):
            wpack.plan_from_model(7)
        with pytest.raises(UsageError, match="NoSuchModel"):
            wpack.plan_from_model({"architectures": ["NoSuchModel"]})


def first(rules: Any, name: str) -> Any:
    return next((rule["style"] for rule in rules if fnmatch.fnmatchcase(name, rule["match"])), None)


@pytest.fixture(scope="module")
def mixture() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.Qwen3MoeConfig(
        architectures=["Qwen3MoeForCausalLM"], hidden_size=16, intermediate_size=24, moe_intermediate_size=8,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=4, num_experts=4,
        num_experts_per_tok=2, vocab_size=32, tie_word_embeddings=False,
    )  # fmt: skip


class TestConfigurations:
    @pytest.mark.parametrize("layout", ["tp", "tp+fsdp2", "tp+ep"])
    def test_every_parameter_has_the_style_that_transformers_gives_it(self, mixture: Any, layout: str) -> None:
        import transformers
        from transformers.distributed.parallel_utils import _get_parameter_plan

        with torch.device("meta"):
            model = transformers.Qwen3MoeForCausalLM(mixture)
        plan = read(mixture, layout=layout, ranks=2)
        seen = set()
        for name, _ in model.named_parameters():
            style = _get_parameter_plan(name, model._ep_plan) if "ep" in layout.split("+") else None
            style = style or _get_parameter_plan(name, model._tp_plan)
            assert first(plan["rule"], name) == style, name
            seen.add(style)
        assert {"colwise", "rowwise", None} <= seen and ("ep" not in layout or "grouped_gemm" in seen)

    def test_stages(self, mixture: Any, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps(mixture.to_dict()))
        stages = read(tmp_path, layout="pp", ranks=3)["stages"]
        assert stages["layers"] == "model.layers"
        assert stages["first"] == ["model.embed_tokens.*"] and stages["last"] == ["model.norm.*", "lm_head.*"]

    def test_a_diffusers_configuration(self, tmp_path: Path) -> None:
        pytest.importorskip("diffusers")
        values = {"_class_name": "WanTransformer3DModel", "num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 12}
        (tmp_path / "config.json").write_text(json.dumps({**values, "ffn_dim": 32, "text_dim": 16, "freq_dim": 32}))
        plan = read(tmp_path / "config.json", layout="fsdp1", ranks=2)
        assert plan["fsdp1"]["units"] == ["blocks.*"]
        assert plan["order"][0] == "scale_shift_table"

    def test_the_command(self, mixture: Any, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
        from wpack._command import main

        (tmp_path / "config.json").write_text(json.dumps(mixture.to_dict()))
        arguments = ["wpack", "plan", f"--from-model={tmp_path}", "--layout", "tp", "--ranks", "2"]
        monkeypatch.setattr(sys, "argv", arguments)
        assert main() == 0
        text = capsys.readouterr().out
        assert text == wpack.plan_from_model(tmp_path, layout="tp", ranks=2)
        monkeypatch.setattr(sys, "argv", [*arguments, "-o", str(tmp_path / "plan.toml")])
        assert main() == 0 and (tmp_path / "plan.toml").read_text() == text
        monkeypatch.setattr(sys, "argv", ["wpack", "plan", "--from-model", str(tmp_path / "none"), "--layout", "tp"])
        assert main() == 1 and "hint:" in capsys.readouterr().err


class TestTheProgram:
    """What is written is read, and gives what the framework holds."""

    @pytest.mark.parametrize("original", [False, True])
    def test_flat_parameters(self, tmp_path: Path, original: bool) -> None:
        import ranks as processes

        torch.manual_seed(0)
        model = Model()
        model.ids = None
        model.requires_grad_(True)
        torch.save(model.state_dict(), tmp_path / "model.pt")
        plan = tmp_path / "plan.toml"
        plan.write_text(wpack.plan_from_model(model, layout="fsdp1", ranks=2, units=[Block], use_orig_params=original))
        wpack.convert(tmp_path / "model.pt", tmp_path / "model.wpack", plan=plan, progress=False)
        processes.run(2, flat, tmp_path, tmp_path, original)

    def test_masters(self, tmp_path: Path) -> None:
        torch.manual_seed(0)
        model = Model()
        model.ids = None
        torch.save(model.state_dict(), tmp_path / "model.pt")
        trained = [p for p in model.parameters() if p.requires_grad]
        text = wpack.plan_from_model(model, layout="zero2", ranks=2, optimizer=torch.optim.SGD(trained, lr=1), master=True)
        (tmp_path / "plan.toml").write_text(text)
        wpack.convert(tmp_path / "model.pt", tmp_path / "model.wpack", plan=tmp_path / "plan.toml", progress=False)
        pack = wpack.open(tmp_path / "model.wpack")
        stream = torch.cat([p.detach().reshape(-1) for p in trained])
        stream = nn.functional.pad(stream, (0, -stream.numel() % 4))
        for rank, part in enumerate(stream.chunk(2)):
            shard = pack.shard(rank, 2)
            held = [shard.get_tensor(name) for name in shard.keys() if name.endswith("@master")]
            assert len(held) == 1 and torch.equal(held[0], part)


def flat(rank: int, world: int, folder: Path, original: bool) -> None:
    import warnings

    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    warnings.filterwarnings("ignore", category=FutureWarning)
    model = Model()
    model.ids = None
    model.requires_grad_(True)
    model.load_state_dict(torch.load(folder / "model.pt"))
    wrapped = FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=original, device_id=torch.device("cpu")
    )
    shard = wpack.open(folder / "model.wpack").shard(rank, world)
    streams = [shard.get_tensor(name) for name in shard.keys() if name != "table" and name != "count"]
    for module in FullyShardedDataParallel.fsdp_modules(wrapped):
        local = module._handle.flat_param
        local = getattr(local, "_local_shard", local)
        assert any(one.shape == local.shape and torch.equal(one, local) for one in streams)
