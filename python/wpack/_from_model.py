"""A plan file read off a model: what a checkpoint does not say, and nobody should write by hand."""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._torch import need
from .errors import RulesError, UsageError

if TYPE_CHECKING:
    import torch
    from torch import nn


def plan_from_model(
    model: Any,
    *,
    layout: str = "replicate",
    ranks: int | None = None,
    mesh: str | Mapping[str, int] | None = None,
    component: str | None = None,
    units: Iterable[str | type] | None = None,
    use_orig_params: bool = False,
    param_dtype: torch.dtype | str | None = None,
    tp_plan: Mapping[str, Any] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    master: bool = False,
    round_robin_gradients: bool = False,
    parameter_alignment: bool = False,
    dtype: torch.dtype | str | None = None,
) -> str:
    """The text of a plan file (``docs/plan.md``) for a model; no weight is read or made.

    Read off the model: which floating tensors are buffers, which others are parameters, the order of the
    parameters, what is frozen, ties (as comments), FSDP units, tensor and expert parallel styles, pipeline
    stages and optimizer groups. Only what the layout asks for is written.

    Args:
        model: A module, on the meta device or real; or a folder or ``config.json`` of transformers or
            diffusers, or such a configuration as an object or mapping: the model is then built on the meta
            device.
        layout: The layout, as ``--layout`` takes it.
        ranks, mesh: As ``--ranks`` and ``--mesh``.
        component: Write a section for this component; for all of them if not given.
        units: FSDP1's wrapped modules: paths (``"blocks.*"``) or classes. What the model must not split
            (``_no_split_modules``) if not given.
        use_orig_params, param_dtype: As given to FSDP1; ``param_dtype`` is that of ``MixedPrecision``.
        tp_plan: Styles by path, as ``parallelize_module`` takes them or by transformers' names; the model's own
            plan if not given.
        optimizer: Its groups become the groups of ZeRO's masters; one group of all if not given.
        master, round_robin_gradients, parameter_alignment: Whether the pack carries ZeRO's masters, and
            DeepSpeed's settings of these names.
        dtype: Cast floating tensors.

    Raises:
        RulesError: the model does not say what the layout needs, such as a tensor parallel plan.
        UsageError: ``model`` is nothing that a model can be made from.
    """
    need()
    model = _model(model)
    names = _Names(model)
    top: list[str] = [f"# Made from {type(model).__module__}.{type(model).__qualname__}."]
    top += [f"# One parameter: {', '.join(group)}" for group in names.ties]
    if isinstance(mesh, Mapping):
        mesh = ",".join(f"{axis}={size}" for axis, size in mesh.items())
    top += _key("mesh", mesh) + _key("ranks", ranks)
    top += _key("replicate", names.floating_buffers) + _key("shard", names.other_parameters)
    section = _key("layout", layout)
    tables: list[tuple[str, list[str]]] = []
    parts = layout.split("+")
    if "fsdp1" in parts or master:
        section += _key("order", [name for name, _ in model.named_parameters()])
    if master:
        section += _key("frozen", [name for name, p in model.named_parameters() if not p.requires_grad])
    rules: list[list[str]] = []
    if "tp" in parts or "ep" in parts:
        section += _key("default_style", "replicate")
        rules = [_key("match", match) + _key("style", style) for match, style in _rules(model, parts, tp_plan)]
    if dtype is not None:
        tables.append(("transform", _key("dtype", _element_type(dtype))))
    if "fsdp1" in parts:
        body = _key("units", _units(model, units)) + _key("use_orig_params", use_orig_params)
        tables.append(("fsdp1", body + _key("param_dtype", param_dtype and _element_type(param_dtype))))
    if master:
        body = _key("master", True) + _key("groups", _groups(model, optimizer))
        body += _key("round_robin_gradients", round_robin_gradients) + _key("parameter_alignment", parameter_alignment)
        tables.append(("zero", body))
    if "pp" in parts:
        tables.append(("stages", _stages(model)))
    prefix = "" if component is None else f"component.{_bare(component)}"
    lines = [*top, *(["", f"[{prefix}]"] if prefix else []), *section]
    for name, body in tables:
        lines += ["", f"[{prefix}.{name}]" if prefix else f"[{name}]", *body]
    for body in rules:
        lines += ["", f"[[{prefix}.rule]]" if prefix else "[[rule]]", *body]
    return "\n".join(lines) + "\n"


class _Names:
    """The model's names, by what a checkpoint does not tell apart."""

    def __init__(self, model: nn.Module) -> None:
        saved = set(model.state_dict())
        buffers = dict(model.named_buffers(remove_duplicate=False))
        parameters = dict(model.named_parameters(remove_duplicate=False))
        #: They look like parameters in a checkpoint.
        self.floating_buffers = [_literal(n) for n, b in buffers.items() if n in saved and _looks_cut(b)]
        #: They look like buffers in a checkpoint; what has no dimension is never cut.
        self.other_parameters = [_literal(n) for n, p in parameters.items() if p.dim() and not _looks_cut(p)]
        groups: dict[int, list[str]] = {}
        for name, parameter in parameters.items():
            groups.setdefault(id(parameter), []).append(name)
        self.ties = [group for group in groups.values() if len(group) > 1]


def _looks_cut(tensor: torch.Tensor) -> bool:
    return tensor.dim() > 0 and bool(tensor.is_floating_point())


def _model(given: Any) -> Any:
    from torch import nn

    if isinstance(given, nn.Module):
        return given
    if isinstance(given, (str, os.PathLike)):
        path = Path(given)
        path = path / "config.json" if path.is_dir() else path
        try:
            given = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: no configuration: {error}", hint="name a folder with config.json") from error
    if isinstance(given, Mapping):
        return _configured(given)
    if hasattr(given, "architectures"):
        return _configured(given.to_dict(), given)
    raise UsageError(
        f"a {type(given).__name__} is no module and no configuration",
        hint="give a torch module, a configuration, or the folder of one",
    )


def _configured(values: Mapping[str, Any], config: Any = None) -> Any:
    """A model on the meta device, of the class that a configuration names."""
    import torch

    if "_class_name" in values:
        import diffusers

        found = getattr(diffusers, str(values["_class_name"]), None)
        if found is not None:
            with torch.device("meta"):
                return found.from_config(dict(values))
        library, named = "diffusers", values["_class_name"]
    else:
        import transformers

        library, named = "transformers", values.get("architectures")
        for one in named or []:
            found = getattr(transformers, one, None)
            if found is not None:
                with torch.device("meta"):
                    return found._from_config(found.config_class.from_dict(dict(values)) if config is None else config)
    raise UsageError(f"{library} has no class {named!r}", hint="build the model on the meta device and give that")


def _units(model: nn.Module, units: Iterable[str | type] | None) -> list[str]:
    """Paths of wrapped modules, `*` where all members of a list are."""
    wanted = getattr(model, "_no_split_modules", None) if units is None else units
    if not wanted:
        raise RulesError("the model does not say which modules are FSDP's units", hint='give units=["blocks.*"]')
    found: list[str] = []
    for unit in wanted:
        paths = [path for path, module in model.named_modules() if path and _is_unit(path, module, unit)]
        if not paths:
            raise RulesError(f"no module is the unit {unit!r}", hint="model.named_modules() lists the paths")
        found += [unit] if isinstance(unit, str) and "*" in unit else paths
    return _folded(model, list(dict.fromkeys(found)))


def _is_unit(path: str, module: nn.Module, unit: str | type) -> bool:
    if isinstance(unit, type):
        return bool(isinstance(module, unit))
    pattern = re.escape(unit).replace(r"\*", r"[^.]*")
    return type(module).__name__ == unit or re.fullmatch(pattern, path) is not None


def _folded(model: nn.Module, paths: list[str]) -> list[str]:
    out: list[str] = []
    for path in paths:
        owner, _, leaf = path.rpartition(".")
        members = [name for name, _ in model.get_submodule(owner).named_children()] if leaf.isdecimal() else []
        whole = bool(members) and all(f"{owner}.{member}" in paths for member in members)
        out.append(f"{owner}.*" if whole else path)
    return list(dict.fromkeys(out))


def _groups(model: nn.Module, optimizer: Any) -> list[list[str]]:
    """Names of each optimizer group; none says one group of all."""
    if optimizer is None:
        return []
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = []
    for at, group in enumerate(optimizer.param_groups):
        unknown = [p for p in group["params"] if id(p) not in names]
        if unknown:
            raise RulesError(
                f"optimizer group {at} holds {len(unknown)} tensors that are no parameters of the model",
                hint="make the optimizer of this very model's parameters",
            )
        groups.append([_literal(names[id(p)]) for p in group["params"]])
    return groups


def _stages(model: nn.Module) -> list[str]:
    """The list of layers, and what lies before and behind it, from the model's pipeline plan."""
    from torch import nn

    planned = getattr(model, "_pp_plan", None) or {}
    # The plan of a model with a head lists the head first: the model itself has them in their order.
    plan = [path for path, _ in model.named_modules() if path in planned]
    lists = [path for path in plan if isinstance(_submodule(model, path), nn.ModuleList)]
    if len(lists) != 1:
        raise RulesError(
            f"the model's pipeline plan names {len(lists)} lists of layers", hint="write the section [stages] by hand"
        )
    at = plan.index(lists[0])

    def of(paths: list[str]) -> list[str]:
        return [f"{_literal(path)}.*" for path in paths if _holds(model, path)]

    return _key("layers", lists[0]) + _key("first", of(plan[:at])) + _key("last", of(plan[at + 1 :]))


def _submodule(model: nn.Module, path: str) -> Any:
    try:
        return model.get_submodule(path)
    except AttributeError:
        return None


def _holds(model: nn.Module, path: str) -> bool:
    module = _submodule(model, path)
    return module is not None and len(module.state_dict()) > 0


def _rules(model: nn.Module, layouts: Sequence[str], given: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Globs and styles; the first that matches a parameter gives it the style that the plan gives it."""
    plan = given if given is not None else getattr(model, "_tp_plan", None) if "tp" in layouts else None
    experts = getattr(model, "_ep_plan", None) if "ep" in layouts else None
    if not plan and not experts:
        raise RulesError(
            f"{type(model).__name__} has no {' and no '.join(part for part in layouts if part in ('tp', 'ep'))} plan",
            hint="give tp_plan=, as parallelize_module takes it",
        )
    wanted: dict[str, str] = {}
    globs: dict[str, str] = {}
    for name, _ in model.named_parameters(remove_duplicate=False):
        for one in (experts or {}, plan or {}):
            found = _planned(name, one)
            if found is not None:
                key, glob = found
                wanted[name] = globs[glob] = _style(model, key, name, one[key])
                break
    rules = list(globs.items())
    # A star of a glob matches dots too: where that gives a tensor another style, it gets a rule of its own.
    wrong = [
        name
        for name, _ in model.named_parameters(remove_duplicate=False)
        if next((style for glob, style in rules if fnmatch.fnmatchcase(name, glob)), None) != wanted.get(name)
    ]
    return [(_literal(name), wanted.get(name, "replicate")) for name in wrong] + rules


def _planned(name: str, plan: Mapping[str, Any]) -> tuple[str, str] | None:
    """The plan's key for a parameter, and the glob that says the same; as transformers looks it up."""
    generic = re.sub(r"\.\d+(?=\.|$)", ".*", name)
    for own in dict.fromkeys((name, generic)):
        if own in plan:
            return own, own
        owner = own.rpartition(".")[0]
        if owner and owner in plan:
            return owner, f"{owner}.*"
    return None


def _style(model: nn.Module, key: str, name: str, style: Any) -> str:
    if isinstance(style, str):
        return style
    from torch import nn

    kind = type(style).__name__
    embedding = isinstance(_submodule(model, name.rpartition(".")[0]), nn.Embedding)
    known = {
        "ColwiseParallel": "embedding_colwise" if embedding else "colwise",
        "RowwiseParallel": "embedding_rowwise" if embedding else "rowwise",
        "SequenceParallel": "sequence_parallel",
        "PrepareModuleInput": "replicate",
        "PrepareModuleOutput": "replicate",
        "PrepareModuleInputOutput": "replicate",
    }
    if kind not in known:
        raise RulesError(f"`{key}` has the style {kind}, which no rule is known for", hint="write its rules by hand")
    return known[kind]


def _literal(name: str) -> str:
    """A glob of this name only."""
    return re.sub(r"([*?\[\]{}])", r"[\1]", name)


def _element_type(dtype: Any) -> str:
    from ._torch import dtypes

    text = str(dtype).removeprefix("torch.")
    return next((ours for ours, theirs in dtypes().items() if str(theirs) == f"torch.{text}"), text.upper())


def _bare(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _key(key: str, value: Any) -> list[str]:
    """A line of TOML; none for what is not there. Its strings are those of JSON."""
    if value is None or value == []:
        return []
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, list) and len(text) > 100:
        text = "[\n" + "".join(f"  {json.dumps(one, ensure_ascii=False)},\n" for one in value) + "]"
    return [f"{key} = {text}"]


def command(arguments: Sequence[str]) -> int:
    """``wpack plan --from-model``: prints or writes the plan file."""
    parser = argparse.ArgumentParser("wpack plan", description="Write a plan file from a model; no weight is read.")
    parser.add_argument(
        "--from-model", required=True, metavar="MODEL",
        help="folder or config.json of transformers or diffusers, or MODULE:FUNCTION that returns a torch module",
    )  # fmt: skip
    parser.add_argument("--layout", default="replicate")
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--mesh")
    parser.add_argument("--component")
    parser.add_argument("--unit", action="append", metavar="PATH", help="module that FSDP1 wraps; may be repeated")
    parser.add_argument("--use-orig-params", action="store_true")
    parser.add_argument("--param-dtype", metavar="DTYPE", help="MixedPrecision.param_dtype of FSDP1")
    parser.add_argument("--with-master", action="store_true", help="carry the fp32 masters of ZeRO-1 and ZeRO-2")
    parser.add_argument("--dtype")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="standard output if not given")
    options = parser.parse_args(list(arguments))
    text = plan_from_model(
        _named(options.from_model),
        layout=options.layout,
        ranks=options.ranks,
        mesh=options.mesh,
        component=options.component,
        units=options.unit,
        use_orig_params=options.use_orig_params,
        param_dtype=options.param_dtype,
        master=options.with_master,
        dtype=options.dtype,
    )
    if options.output is None:
        sys.stdout.write(text)
    else:
        options.output.write_text(text, encoding="utf-8")
    return 0


def _named(text: str) -> Any:
    """A path as it is; ``module:function`` called on the meta device."""
    module, mark, function = text.partition(":")
    if not mark or os.path.exists(text):
        return text
    import torch

    sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{text}: {error}", hint="name a function that can be imported from here") from error
    with torch.device("meta"):
        return make()
