"""Packs that stand for checkpoint files: ``x.wpack#component``, and packs that are registered.

A registered pack is used where a program asks for checkpoint files that the pack says it was made from.
Packs are registered, in this order of preference, by :meth:`Registry.add`, by ``WPACK_PATH`` (packs or
folders of packs, separated as in ``PATH``), and by ``wpack register``, which keeps the user's list.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import Pack, WpackError
from .. import open as open_pack
from .._command import registered
from ..errors import RegistryError

SUFFIX = ".wpack"

_SHARD = re.compile(r"-(\d+)-of-(\d+)\.")


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
        PackReferenceError: the pack has several components and the reference names none, or one that it
            does not have.
    """
    path, component = split(os.fspath(reference))
    pack = open_pack(path)
    if component is None and len(pack.components) == 1:
        return pack, pack.components[0]
    if component in pack.components:
        return pack, component
    listed = ", ".join(pack.components)
    raise PackReferenceError(
        f"{path} holds {len(pack.components)} components: {listed}"
        if component is None
        else f"{path} holds no component `{component}`, but {listed}",
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

    def whole(self) -> bool:
        """True if no shard of a numbered set (``-00001-of-00003``) is missing among the sources."""
        totals: dict[str, set[str]] = {}
        for source in self.sources:
            found = _SHARD.search(source.name)
            if found:
                totals.setdefault(found[2], set()).add(found[1])
        return all(len(numbers) == int(total) for total, numbers in totals.items())


class Registry:
    """Registered packs, by the files that they stand for."""

    def __init__(self) -> None:
        self._packs: dict[str, str | None] = {}
        self._holdings: dict[tuple[str, str | None], list[Holding]] = {}
        self._skipped: set[str] = set()
        #: Compare recorded SHA-256 digests with those of the files, always.
        self.check_hash = False

    def add(self, pack: str | os.PathLike[str], model_id: str | None = None) -> None:
        """Registers a pack; with ``model_id`` it also stands for files of that model that are not on disk.

        Raises:
            RegistryError: there is no such pack.
        """
        path = os.path.abspath(os.fspath(pack))
        if not os.path.isfile(path):
            raise RegistryError(f"no pack at {path}", hint="give the path of a .wpack file")
        self._packs[path] = model_id

    def find(self, files: Sequence[str]) -> Holding | None:
        """The component made from exactly these files: base names and sizes are compared, and digests
        where several components are alike in both or :attr:`check_hash` is set.

        Raises:
            PackReferenceError: several components match and nothing tells them apart.
            RegistryError: digests are to be compared and the pack has recorded none.
        """
        if not files:
            return None
        try:
            wanted = sorted((os.path.basename(file), os.path.getsize(file)) for file in files)
        except OSError:
            return None
        for tier in self._tiers():
            found = [h for h in tier if sorted((s.name, s.size) for s in h.sources) == wanted]
            if found:
                return self._one(self._by_digest(found, files), files)
        return None

    def find_model(self, model_id: str, pattern: str) -> Holding | None:
        """The component of a pack registered for ``model_id`` whose files are those that a pattern names.

        A pattern with a folder (``vae/*.safetensors``) means the component of that name where several fit.
        """
        folder, name = os.path.split(pattern)

        def fits(holding: Holding) -> bool:
            return (
                holding.model_id == model_id
                and bool(holding.sources)
                and all(fnmatch.fnmatchcase(source.name, name) for source in holding.sources)
                and holding.whole()
            )

        return self._search(fits, os.path.basename(folder), f"{model_id}:{pattern}")

    def find_name(self, names: Iterable[str], asked: str) -> Holding | None:
        """The component made from one file that has one of these names, whatever its model."""
        known = set(names)
        return self._search(lambda h: len(h.sources) == 1 and h.sources[0].name in known, "", asked)

    def _search(self, fits: Callable[[Holding], bool], component: str, asked: str) -> Holding | None:
        for tier in self._tiers():
            found = [h for h in tier if fits(h)]
            named = [h for h in found if h.component == component]
            if found:
                return self._one(named or found, [asked])
        return None

    def _by_digest(self, found: list[Holding], files: Sequence[str]) -> list[Holding]:
        recorded = all(source.sha256 is not None for h in found for source in h.sources)
        if self.check_hash and not recorded:
            raise RegistryError(
                f"{found[0].reference} has not recorded the digests of its files",
                hint="convert with --hash-sources, or do not ask for a check by hash",
            )
        if not recorded or (len(found) < 2 and not self.check_hash):
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

    def _tiers(self) -> Iterable[list[Holding]]:
        for strict, packs in ((True, self._packs), (False, _from_environment()), (False, _from_user())):
            holdings = [h for path, model_id in packs.items() for h in self._of(path, model_id, strict)]
            if holdings:
                yield holdings

    def _of(self, path: str, model_id: str | None, strict: bool) -> list[Holding]:
        key = path, model_id
        if key not in self._holdings:
            try:
                self._holdings[key] = _holdings(path, model_id)
            except (WpackError, OSError) as error:
                if strict:
                    raise
                # A pack that nothing may ask for must not stop a run, nor be passed over in silence.
                if path not in self._skipped:
                    sys.stderr.write(f"wpack: registered pack passed over: {error}\n")
                    self._skipped.add(path)
                return []
        return self._holdings[key]


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


def _from_user() -> dict[str, str | None]:
    return {pack["path"]: pack.get("model_id") for pack in registered()}


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 23):
            digest.update(chunk)
    return digest.hexdigest()
