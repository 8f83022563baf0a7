"""The command line, and its commands as functions."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

from . import _wpack
from ._progress import Progress, choose
from .errors import WpackError, from_code

if TYPE_CHECKING:
    import torch

Path = Union[str, "os.PathLike[str]"]
Inputs = Union[Path, Mapping[str, Path], Iterable[Path]]
Names = Union[str, Iterable[str]]


def main() -> int:
    """The ``wpack`` command; returns its exit status."""
    if sys.argv[1:2] == ["plan"] and any(one.split("=")[0] == "--from-model" for one in sys.argv):
        return _from_model()
    return _wpack.run_command(["wpack", *sys.argv[1:]])


def _from_model() -> int:
    """The one command that needs torch."""
    from ._from_model import command

    try:
        return command(sys.argv[2:])
    except WpackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def convert(
    inputs: Inputs,
    output: Path | None = None,
    *,
    plan: Path | None = None,
    layout: str | Mapping[str, str] | None = None,
    ranks: int | None = None,
    mesh: str | Mapping[str, int] | None = None,
    order: Path | None = None,
    with_master: bool = False,
    replicate: Names = (),
    shard: Names = (),
    components: Names = (),
    root: str | None = None,
    output_limit: int | None = None,
    include: Names = (),
    exclude: Names = (),
    dtype: str | torch.dtype | Mapping[str, str | torch.dtype] | None = None,
    strip_prefix: Names = (),
    add_prefix: str | None = None,
    rename: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    align: int | None = None,
    overwrite: bool = False,
    hash_sources: bool = False,
    dry_run: bool = False,
    threads: int | None = None,
    progress: bool | Progress | None = None,
) -> dict[str, Any]:
    """Rewrites a checkpoint into a packfile; the options are those of ``wpack convert``.

    Args:
        inputs: A file, glob or folder; several of them; or a mapping of components to paths.
        output: The packfile to write. It has no name until it is whole.
        plan: A plan file, such as :func:`wpack.plan_from_model` writes; other options take the place of its keys.
        layout: Such as ``"replicate"``, ``"zero3"`` or ``"tp+fsdp2"``, or a mapping of components to layouts.
        ranks: Number of ranks; not needed for layouts that fit any number.
        mesh: The grid of ranks, ``"dp=2,fsdp=4"`` or a mapping in that order.
        order: The order in which the model registers its parameters, for ``fsdp1`` and ``with_master``:
            ``"checkpoint"``, or a file with a name in each line.
        with_master: With ``zero1`` and ``zero2`` also each rank's part of the optimizer's fp32 master weights.
        replicate, shard: Globs of names to keep whole on every rank, or to cut although the layout would not.
        components: Only these components of the input.
        root: Path of the state dict inside a pickled object.
        output_limit: Most bytes that views and compression may expand to.
        include, exclude: Globs of names in the checkpoint to keep or leave out.
        dtype: Cast floating tensors exactly as ``torch.Tensor.to`` does; one type, or one for each component.
        strip_prefix, add_prefix: Prefixes of names to remove (the first that fits) and to add.
        rename: Regular expressions and their replacements, applied in order.
        align: Alignment of extents in bytes, a power of two.
        overwrite: Replace a file that is there already.
        hash_sources: Record the SHA-256 of every source file.
        dry_run: Plan, and write nothing.
        threads: Worker threads. The bytes written do not depend on it.
        progress: As for :meth:`wpack.RankShard.state_dict`.

    Returns:
        The report that ``wpack convert --json`` prints.

    Raises:
        WpackError: the class says why; nothing has been written.
    """
    arguments = ["convert", *_inputs(inputs), *_path("output", output), *_path("plan", plan)]
    arguments += _layout(layout, ranks, mesh, order, with_master, replicate, shard)
    arguments += _transform(root, output_limit, components, include, exclude, dtype, strip_prefix, add_prefix, rename)
    arguments += _value("align", align) + _value("threads", threads)
    arguments += _flag("overwrite", overwrite) + _flag("hash-sources", hash_sources) + _flag("dry-run", dry_run)
    return _run(arguments, progress)


def plan(
    inputs: Inputs,
    *,
    plan: Path | None = None,
    layout: str | Mapping[str, str] | None = None,
    ranks: int | None = None,
    mesh: str | Mapping[str, int] | None = None,
    order: Path | None = None,
    with_master: bool = False,
    replicate: Names = (),
    shard: Names = (),
    components: Names = (),
    root: str | None = None,
    output_limit: int | None = None,
    include: Names = (),
    exclude: Names = (),
    dtype: str | torch.dtype | Mapping[str, str | torch.dtype] | None = None,
    strip_prefix: Names = (),
    add_prefix: str | None = None,
    rename: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    align: int | None = None,
    tensors: str | None = None,
    emit: Path | None = None,
    processes: int | None = None,
    trainable: Names = (),
    host_memory: int | None = None,
) -> dict[str, Any]:
    """Says what :func:`convert` would do, from the headers alone; arguments as there.

    Args:
        tensors: Glob of tensors to list; ``"*"`` for all.
        emit: A plan file to write, from which :func:`convert` makes the same bytes.
        processes: Say whether so many processes that load the model fit on the host, with the pack and without.
        trainable: Globs of names of parameters that are trained; without them none is, as with LoRA.
        host_memory: Memory of the host in bytes; without it, what this machine has left.

    Returns:
        The report that ``wpack plan --json`` prints.
    """
    arguments = ["plan", *_inputs(inputs), *_path("plan", plan), *_path("emit", emit)]
    arguments += _layout(layout, ranks, mesh, order, with_master, replicate, shard)
    arguments += _fit(processes, trainable, host_memory)
    arguments += _transform(root, output_limit, components, include, exclude, dtype, strip_prefix, add_prefix, rename)
    arguments += _value("align", align) + _value("tensors", tensors)
    return _run(arguments, False)


def inspect(
    inputs: Inputs,
    *,
    rank: int | None = None,
    tensors: str | None = None,
    root: str | None = None,
    output_limit: int | None = None,
    processes: int | None = None,
    trainable: Names = (),
    host_memory: int | None = None,
) -> dict[str, Any]:
    """Shows what a pack or a checkpoint holds; no tensor data is read.

    Args:
        inputs: A packfile, or any checkpoint that :func:`convert` takes.
        rank: Only what this rank holds.
        tensors: Glob of tensors to list; ``"*"`` for all.
        root: Path of the state dict inside a pickled object, for checkpoints.
        output_limit: Most bytes that views and compression may expand to, for checkpoints.
        processes, trainable, host_memory: As for :func:`plan`.

    Returns:
        The report that ``wpack inspect --json`` prints.
    """
    arguments = ["inspect", *_inputs(inputs), *_fit(processes, trainable, host_memory)]
    arguments += _value("rank", rank) + _value("tensors", tensors) + _value("root", root)
    return _run(arguments + _value("output-limit", output_limit), False)


def verify(
    pack: Path,
    *,
    rank: int | None = None,
    against: Inputs | None = None,
    root: str | None = None,
    threads: int | None = None,
    progress: bool | Progress | None = None,
) -> dict[str, Any]:
    """Checks every byte of a pack.

    Args:
        pack: The packfile.
        rank: Only header, index and what this rank holds.
        against: The checkpoint that the pack was made from: every tensor is compared with it.
        root: Path of the state dict inside a pickled object, for ``against``.
        threads: Worker threads.
        progress: As for :func:`convert`.

    Returns:
        The report that ``wpack verify --json`` prints.

    Raises:
        DamagedError: something is not what was written; ``error.report`` says what.
        DifferentError: the checkpoint gives other tensors; ``error.report`` says which.
    """
    arguments = ["verify", os.fspath(pack), *_value("rank", rank), *_value("threads", threads)]
    if against is not None:
        arguments += [part for one in _inputs(against) for part in ("--against", one)]
    arguments += _value("root", root)
    return _run(arguments, progress)


def registered() -> list[dict[str, Any]]:
    """The packs of ``wpack register``, each with its path, its digest, and its model's name where it has one.

    Raises:
        RegistryError: the list is not what ``wpack register`` writes.
    """
    packs: list[dict[str, Any]] = _run(["register"], False)["packs"]
    return packs


def _run(arguments: list[str], progress: bool | Progress | None) -> dict[str, Any]:
    status, text = _wpack.run_json(["wpack", *arguments, "--json", "--quiet"], choose(progress))
    report: dict[str, Any] = json.loads(text) if text else {}
    error = report.get("error")
    if error is not None or status != 0:
        error = error or {"code": "internal", "message": f"the command ended with status {status}"}
        message = ": ".join([error["message"], *error.get("causes", [])])
        raised: WpackError = from_code(error["code"], message, error.get("hint"))
        raised.report = report
        raise raised
    return report


def _inputs(inputs: Inputs) -> list[str]:
    if isinstance(inputs, (str, os.PathLike)):
        return [os.fspath(inputs)]
    if isinstance(inputs, Mapping):
        return [f"{name}={os.fspath(path)}" for name, path in inputs.items()]
    return [os.fspath(path) for path in inputs]


def _layout(
    layout: str | Mapping[str, str] | None,
    ranks: int | None,
    mesh: str | Mapping[str, int] | None,
    order: Path | None,
    with_master: bool,
    replicate: Names,
    shard: Names,
) -> list[str]:
    if isinstance(mesh, Mapping):
        mesh = ",".join(f"{axis}={size}" for axis, size in mesh.items())
    return [
        *_scoped("layout", layout),
        *_value("ranks", ranks),
        *_value("mesh", mesh),
        *_path("order", order),
        *_flag("with-master", with_master),
        *_each("replicate", replicate),
        *_each("shard", shard),
    ]


def _fit(processes: int | None, trainable: Names, host_memory: int | None) -> list[str]:
    return [*_value("processes", processes), *_each("trainable", trainable), *_value("host-memory", host_memory)]


def _transform(
    root: str | None,
    output_limit: int | None,
    components: Names,
    include: Names,
    exclude: Names,
    dtype: Any,
    strip_prefix: Names,
    add_prefix: str | None,
    rename: Mapping[str, str] | Iterable[tuple[str, str]],
) -> list[str]:
    pairs = rename.items() if isinstance(rename, Mapping) else rename
    types = {k: _type(v) for k, v in dtype.items()} if isinstance(dtype, Mapping) else dtype and _type(dtype)
    return [
        *_value("root", root),
        *_value("output-limit", output_limit),
        *_each("component", components),
        *_each("include", include),
        *_each("exclude", exclude),
        *_scoped("dtype", types),
        *_each("strip-prefix", strip_prefix),
        *_value("add-prefix", add_prefix),
        *_each("rename", [f"{old}={new}" for old, new in pairs]),
    ]


def _path(option: str, path: Path | None) -> list[str]:
    return [] if path is None else [f"--{option}={os.fspath(path)}"]


def _type(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _value(option: str, value: object) -> list[str]:
    return [] if value is None else [f"--{option}={value}"]


def _flag(option: str, value: bool) -> list[str]:
    return [f"--{option}"] if value else []


def _each(option: str, values: Names) -> list[str]:
    return [f"--{option}={value}" for value in ([values] if isinstance(values, str) else values)]


def _scoped(option: str, value: str | Mapping[str, str] | None) -> list[str]:
    if isinstance(value, Mapping):
        return [f"--{option}={component}={one}" for component, one in value.items()]
    return _value(option, value)
