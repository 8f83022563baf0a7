"""Packs that stand for checkpoint files: ``x.wpack#component``, and packs that are registered.

A registered pack is used where a program asks for checkpoint files that the pack says it was made from.
Packs are registered by ``WPACK_PATH`` (packs or folders of packs, separated as in ``PATH``) and by
:meth:`Registry.add`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import Pack, WpackError
from .. import open as open_pack

SUFFIX = ".wpack"


class PackReferenceError(WpackError):
    """A pack is named without the component that is meant, or several packs hold what is asked for."""


def is_reference(path: object) -> bool:
    """True for ``x.wpack`` and ``x.wpack#component``."""
    return isinstance(path, (str, os.PathLike)) and split(os.fspath(path))[0].endswith(SUFFIX)


def split(reference: str) -> tuple[str, str | None]:
    """File and component of a reference."""
    head, mark, component = reference.rpartition("#")
    if mark and head.endswith(SUFFIX):
        return head, component
    return reference, None


def open_reference(reference: str) -> tuple[Pack, str]:
    """The pack and the one component that a reference means.

    Raises:
        PackReferenceError: the pack has several components and the reference names none.
    """
    path, component = split(os.fspath(reference))
    pack = open_pack(path)
    if component is not None:
        return pack, component
    if len(pack.components) == 1:
        return pack, pack.components[0]
    raise PackReferenceError(
        f"{path} holds {len(pack.components)} components: {', '.join(pack.components)}",
        hint=f"name the one that is meant: {path}#{pack.components[0]}",
    )


@dataclass(frozen=True)
class Source:
    """One file that a component was made from."""

    name: str
    """Base name."""
    size: int
    """Bytes."""
    sha256: str | None
    """Digest, if it was recorded (``wpack convert --hash-sources``)."""


@dataclass(frozen=True)
class Holding:
    """A component of a registered pack, and the files that it stands for."""

    pack: str
    component: str
    model_id: str | None
    sources: tuple[Source, ...]

    @property
    def reference(self) -> str:
        """How to name it."""
        return f"{self.pack}#{self.component}"


class Registry:
    """Registered packs, by the files that they stand for."""

    def __init__(self) -> None:
        self._packs: dict[str, str | None] = {}
        self._holdings: dict[str, list[Holding]] = {}

    def add(self, pack: str | os.PathLike[str], model_id: str | None = None) -> None:
        """Registers a pack; with ``model_id`` it also stands for files of that model that are not on disk."""
        self._packs[os.path.abspath(os.fspath(pack))] = model_id

    def find(self, files: Sequence[str]) -> Holding | None:
        """The component made from exactly these files: base names and sizes are compared, and digests
        where several components are alike in both.

        Raises:
            PackReferenceError: several components match and nothing tells them apart.
        """
        try:
            wanted = sorted((os.path.basename(file), os.path.getsize(file)) for file in files)
        except OSError:
            return None
        found = [h for h in self._all() if sorted((s.name, s.size) for s in h.sources) == wanted]
        return self._one(self._by_digest(found, files), files)

    def find_model(self, model_id: str, base_names: Iterable[str] | None, matches: object) -> Holding | None:
        """The component of a pack registered for ``model_id`` whose files all match a pattern."""
        accept = matches if callable(matches) else (lambda name: name in set(base_names or ()))
        found = [
            h for h in self._all() if h.model_id == model_id and h.sources and all(accept(s.name) for s in h.sources)
        ]
        return self._one(found, [model_id])

    def _by_digest(self, found: list[Holding], files: Sequence[str]) -> list[Holding]:
        if len(found) < 2 or any(source.sha256 is None for h in found for source in h.sources):
            return found
        digests = {os.path.basename(file): _sha256(file) for file in files}
        return [h for h in found if all(digests[s.name] == s.sha256 for s in h.sources)]

    def _one(self, found: list[Holding], asked: Sequence[str]) -> Holding | None:
        if len({h.reference for h in found}) > 1:
            raise PackReferenceError(
                f"{len(found)} registered components stand for {', '.join(asked)}: "
                + ", ".join(h.reference for h in found),
                hint="name the one that is meant instead of the files, or convert with --hash-sources",
            )
        return found[0] if found else None

    def _all(self) -> Iterable[Holding]:
        for path, model_id in {**_from_environment(), **self._packs}.items():
            if path not in self._holdings:
                self._holdings[path] = _holdings(path, model_id)
            yield from self._holdings[path]


def _holdings(path: str, model_id: str | None) -> list[Holding]:
    pack = open_pack(path)
    return [
        Holding(path, component, model_id, tuple(Source(*row) for row in pack.sources(component)))
        for component in pack.components
    ]


def _from_environment() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for entry in filter(None, os.environ.get("WPACK_PATH", "").split(os.pathsep)):
        place = Path(entry)
        packs = sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else [place]
        found.update({os.path.abspath(pack): None for pack in packs})
    return found


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 23):
            digest.update(chunk)
    return digest.hexdigest()
