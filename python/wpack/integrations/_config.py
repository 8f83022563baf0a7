"""The small files that a pack carries: configurations, tokenizers, schedulers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .. import Pack, WpackError
from .. import open as open_pack
from ..errors import UnknownComponentError
from ._packs import open_reference, split


class MissingConfigError(WpackError):
    """The pack does not carry the file that says which class the model is."""


def opened(pack: Pack | str | os.PathLike[str], component: str | None = None) -> tuple[Pack, str]:
    """The pack and the one component that is meant.

    Raises:
        UnknownComponentError: the pack has no such component.
        PackReferenceError: it has several and none is named.
    """
    source, named = (pack, None) if isinstance(pack, Pack) else _split(os.fspath(pack))
    component = component if component is not None else named
    if component is None:
        if len(source.components) == 1:
            return source, source.components[0]
        component = open_reference(source.path)[1]  # raises, and names the components
    if component not in source.components:
        raise UnknownComponentError(
            f"{source.path} has no component `{component}`", hint=f"it has {', '.join(source.components)}"
        )
    return source, component


def _split(reference: str) -> tuple[Pack, str | None]:
    path, component = split(reference)
    return open_pack(path), component


def read_json(pack: Pack, component: str, name: str) -> dict[str, Any] | None:
    """A file of the component, or of the pack as a whole; ``None`` where it carries none of that name."""
    data = pack.file(name, component)
    if data is None:
        data = pack.file(f"{component}/{name}")
    if data is None and len(pack.components) == 1:
        data = pack.file(name)
    if data is None:
        return None
    try:
        values = json.loads(data)
    except ValueError as error:
        raise MissingConfigError(
            f"{pack.path}: {name} of `{component}` is no JSON: {error}",
            hint="repair the file and convert the folder again",
        ) from error
    if not isinstance(values, dict):
        raise MissingConfigError(
            f"{pack.path}: {name} of `{component}` holds a {type(values).__name__}, not an object",
            hint="repair the file and convert the folder again",
        )
    return values


def config(pack: Pack, component: str) -> dict[str, Any]:
    """``config.json`` of a component.

    Raises:
        MissingConfigError: the pack carries none.
    """
    found = read_json(pack, component, "config.json")
    if found is None:
        raise MissingConfigError(
            f"{pack.path} carries no config.json for `{component}`",
            hint="convert the model's folder instead of its weight files",
        )
    return found


def save_files(pack: Pack | str | os.PathLike[str], folder: str | os.PathLike[str]) -> list[Path]:
    """Writes the small files of a pack into a folder, as they lay beside the weights; returns their paths.

    Tokenizers and schedulers load from there: ``AutoTokenizer.from_pretrained(folder)``. Files of a component
    other than the only one lie in a sub-folder of its name.
    """
    source = pack if isinstance(pack, Pack) else open_pack(pack)
    root, written = Path(folder), []
    many = len(source.components) > 1
    for component, name, _ in source.files:
        data = source.file(name, component)
        relative = Path(component, name) if component is not None and many else Path(name)
        if data is None or relative.is_absolute() or ".." in relative.parts:
            continue
        target = root / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        written.append(target)
    return written
