"""Packs and what a rank holds of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from . import _device, _load, _rank, _stage, _torch
from ._progress import Progress, choose
from ._wpack import NativePack, NativeShard, View
from .errors import ChecksumMismatchError, ClosedError, DamagedError, RankError, StateDictCollisionError

if TYPE_CHECKING:
    import numpy
    import torch
    from torch import nn

Prefetch = Literal["ahead", "node"]


def open(path: str | os.PathLike[str], *, read_only: bool = False) -> Pack:
    """Opens a packfile: header and index are read and checked, data is not.

    Args:
        path: The packfile.
        read_only: Map without copy-on-write. For kernels that refuse the private mapping (strict
            overcommit); the price is that a write to a tensor ends the process with a signal, which torch
            cannot prevent.

    Raises:
        IoError: the file cannot be opened.
        WpackError: the file is no sound pack; the class says why.
    """
    return Pack(NativePack(os.fspath(path), read_only), os.fspath(path))


class Pack:
    """An open pack. Closing or deleting it never invalidates a tensor."""

    def __init__(self, native: NativePack, path: str) -> None:
        self._native: NativePack | None = native
        self.path = path

    @property
    def _open(self) -> NativePack:
        if self._native is None:
            raise ClosedError(f"the pack {self.path} is closed")
        return self._native

    def close(self) -> None:
        """Lets go of the file. Shards and tensors made before stay as they are."""
        self._native = None

    def __enter__(self) -> Pack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def components(self) -> tuple[str, ...]:
        """Names of the components, in file order."""
        return tuple(self._open.components)

    @property
    def mesh(self) -> dict[str, int] | None:
        """Ranks along each axis of the mesh, the last varies fastest; ``None`` for a pack that fits any
        number of ranks."""
        mesh = self._open.mesh
        return None if mesh is None else dict(mesh)

    @property
    def world_size(self) -> int | None:
        """Ranks of the mesh; ``None`` for a pack that fits any number of ranks."""
        return self._open.world_size

    @property
    def layout(self) -> str:
        """The layout that it was made for."""
        return self._open.layout

    @property
    def layouts(self) -> dict[str, str]:
        """The layout of each component."""
        return dict(self._open.layouts)

    @property
    def digest(self) -> str:
        """SHA-256 over all that the pack holds, in hexadecimal: two packs of one digest are equal."""
        return self._open.digest

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self._open.nbytes

    @property
    def files(self) -> list[tuple[str | None, str, int]]:
        """Small files carried along: component (``None`` for the pack's own), path, bytes."""
        return self._open.files

    def file(self, path: str, component: str | None = None) -> bytes | None:
        """Contents of a file carried along, such as ``config.json``, its digest checked; ``None`` if there
        is none of that name."""
        return self._open.file(path, component)

    def metadata(self, component: str | None = None) -> dict[str, str]:
        """Text metadata: the pack's, or that of a component's checkpoint."""
        return self._open.metadata(component)

    def sources(self, component: str) -> list[tuple[str, int, str | None]]:
        """Files that a component was made from: base name, bytes, and SHA-256 if it was recorded."""
        return self._open.sources(component)

    def source_names(self, component: str) -> list[tuple[str, str]]:
        """A component's names as (in the checkpoint, in the pack), ties included; no tensor is read."""
        return self._open.source_names(component)

    def shard(
        self,
        rank: int | None = None,
        world_size: int | None = None,
        layout: str | None = None,
        component: str | Sequence[str] | None = None,
        *,
        mesh: str | Mapping[str, int] | None = None,
        plan: str | os.PathLike[str] | None = None,
    ) -> RankShard:
        """What one rank holds.

        The rank comes from ``torch.distributed`` if it is initialised, else from ``RANK`` and
        ``WORLD_SIZE``. A pack made for another world size or layout opens all the same: what is a range of
        the file stays a view, all else is gathered into memory; :meth:`explain` says how much.

        Args:
            rank: This process's rank, from 0.
            world_size: Number of ranks; that of ``mesh`` or ``plan``, or the pack's own, if only ``rank``
                is given.
            layout: Layout to open it as; the pack's own if not given.
            component: One component or several; all if not given. With several, names are
                ``component.name``.
            mesh: The grid of ranks, the last axis varies fastest: ``{"fsdp": 2, "tp": 4}`` or
                ``"fsdp=2,tp=4"``. Layouts of several axes need it.
            plan: A plan file to open it as, where the one that the pack keeps does not say what the layout
                must know of the model. Names are those in the pack.

        Raises:
            RankError: no rank is given or found, or it is out of range.
            UnknownComponentError: the pack has no such component.
            NoRuleError, OrderUnknownError, RulesError: the plan does not say what the layout must know.
            StateDictCollisionError: two of the components give one name, as ``a`` with ``b.c`` and ``a.b``
                with ``c`` do.
        """
        grid = mesh if mesh is None or isinstance(mesh, str) else ",".join(f"{axis}={n}" for axis, n in mesh.items())
        text = None if plan is None else Path(plan).read_text()
        rank, world_size = self._place(rank, world_size, NativePack.ranks(grid, text))
        names = [component] if isinstance(component, str) else None if component is None else list(component)
        shard = RankShard(self._open.shard(rank, world_size, layout, names, grid, text), self.path)
        if len(self.components if names is None else names) > 1:
            self._check_names(shard.keys())
        return shard

    def _check_names(self, keys: list[str]) -> None:
        if len(set(keys)) == len(keys):
            return
        name, _ = Counter(keys).most_common(1)[0]
        owners = [one for one in self.components if name.startswith(f"{one}.")]
        raise StateDictCollisionError(
            f"{self.path}: components {' and '.join(f'`{one}`' for one in owners)} both give the name `{name}`",
            hint=f"open them one by one: pack.shard(component={owners[0]!r})",
        )

    def _place(self, rank: int | None, world_size: int | None, target: int | None) -> tuple[int, int]:
        own = self.world_size if target is None else target
        if rank is None:
            found = _rank.find()
            if found is None:
                if own is not None and own > 1 and world_size != 1:
                    raise RankError(
                        f"the pack is for {own} ranks and nothing says which this process is",
                        hint="start with torchrun, or pass rank=",
                    )
                found = 0, 1
            rank, size = found
            return _rank.check(rank, size if world_size is None else world_size)
        if world_size is None:
            world_size = rank + 1 if own is None else own
        return _rank.check(rank, world_size)

    def explain(
        self,
        rank: int | None = None,
        world_size: int | None = None,
        layout: str | None = None,
        *,
        mesh: str | Mapping[str, int] | None = None,
        plan: str | os.PathLike[str] | None = None,
    ) -> Explanation:
        """What opening it for a rank costs, and which command would make a pack that costs nothing."""
        return self.shard(rank, world_size, layout, mesh=mesh, plan=plan).explain()

    def __repr__(self) -> str:
        if self._native is None:
            return f"wpack.Pack({self.path!r}, closed)"
        mesh = "any ranks" if self.mesh is None else ",".join(f"{k}={v}" for k, v in self.mesh.items())
        return f"wpack.Pack({self.path!r}, layout={self.layout!r}, mesh={mesh!r}, components={self.components})"


@dataclass(frozen=True)
class Explanation:
    """What a rank shard costs on this pack."""

    rank: int
    """The rank."""
    world_size: int
    """Ranks of the world."""
    layout: str
    """Layout it is opened as."""
    fits: bool
    """True if the pack was made for this world size and layout."""
    mapped_bytes: int
    """Bytes that are views of the file."""
    gathered_bytes: int
    """Bytes that are copied into this process, because they are no range of the file."""
    gathered_tensors: int
    """Tensors that are copied."""
    command: str | None
    """Command that makes a pack from which nothing is gathered; ``None`` if nothing is from this one."""

    def __str__(self) -> str:
        lines = [
            f"rank {self.rank} of {self.world_size}, layout {self.layout}: {_bytes(self.mapped_bytes)} mapped without a copy"
        ]
        if self.gathered_bytes or self.gathered_tensors:
            lines.append(
                f"{_bytes(self.gathered_bytes)} in {self.gathered_tensors} tensors gathered into private memory, "
                "because the pack holds them in other pieces"
            )
        if self.command is not None:
            lines.append(f"a pack for exactly this: {self.command}")
        return "\n".join(lines)


def _bytes(count: int) -> str:
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


@dataclass(frozen=True)
class VerifyReport:
    """What a check read; it found no damage."""

    bytes: int
    """Bytes checked."""
    blocks: int
    """Blocks checked."""
    seconds: float
    """Time it took."""


class Slice:
    """Part of a tensor on demand, as safetensors has it: ``shard.get_slice(name)[2:5]``."""

    def __init__(self, shard: RankShard, name: str) -> None:
        self._shard = shard
        self._name = name
        self._dtype, self._shape, _ = shard._native.describe(name)

    def get_shape(self) -> list[int]:
        """Elements per dimension."""
        return list(self._shape)

    def get_dtype(self) -> str:
        """Element type, as safetensors names it."""
        return self._dtype

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self._shard.get_tensor(self._name)[index]


class RankShard(Mapping[str, "torch.Tensor"]):
    """All tensors of one rank.

    Also a mapping of names to tensors: iterating it, ``shard[name]`` and ``len(shard)`` work.
    """

    def __init__(self, native: NativeShard, path: str) -> None:
        self._native = native
        self.path = path
        #: How the last device or eager load went: path taken, bytes and seconds of each stage.
        self.stats: _stage.Stats | None = None

    @property
    def rank(self) -> int:
        """The rank, from 0."""
        return self._native.rank

    @property
    def world_size(self) -> int:
        """Ranks of the world."""
        return self._native.world_size

    def keys(self) -> list[str]:  # type: ignore[override]
        """Names of all tensors, ties included, in file order."""
        return self._native.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self._native.keys())

    def __len__(self) -> int:
        return len(self._native)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._native

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.get_tensor(name)

    def get_tensor(self, name: str) -> torch.Tensor:
        """One tensor on the CPU, a view of the mapped file with a storage of its own.

        Calls share this shard's mapping: what is written through one tensor shows in another of the same
        name. Nothing is read before it is touched.

        Raises:
            UnknownTensorError: no tensor has that name.
            UnsupportedDTypeError: the installed torch has no such element type.
        """
        tensor: torch.Tensor = self._native.tensor(name, _torch.from_dlpack(), _torch.dtypes())
        return tensor

    def get_slice(self, name: str) -> Slice:
        """A tensor of which only a part is wanted; see :class:`Slice`."""
        return Slice(self, name)

    def view(self, name: str) -> View:
        """One tensor's memory for numpy, jax and other DLPack consumers; torch is not needed."""
        return self._native.view(name)

    def numpy(self, name: str) -> numpy.ndarray[Any, Any]:
        """One tensor as a numpy array over the mapped file; torch is not needed.

        bfloat16 and fp8 need the package ``ml_dtypes``; without it ``numpy.asarray(shard.view(name))`` gives
        raw records of their width.
        """
        from ._numpy import array

        return array(self._native.view(name), name)

    def state_dict(
        self,
        device: str | int | torch.device | None = "cpu",
        dtype: torch.dtype | None = None,
        components: str | Sequence[str] | None = None,
        *,
        eager: bool = False,
        prefetch: Prefetch | None = None,
        verify: bool | None = None,
        out: Mapping[str, torch.Tensor] | None = None,
        group_bytes: int | None = None,
        progress: bool | Progress | None = None,
    ) -> dict[str, torch.Tensor]:
        """All tensors of this rank, each with a torch storage of its own (ties share one).

        On the CPU they are views of one copy-on-write mapping per extent, made for this call: no bytes are
        read or copied, writes stay in this process, and the file never changes. The mapping lives as long
        as any of the tensors. On another device, and with ``eager``, blocks are read into a small ring,
        their CRC-32C is checked, and they are copied into memory of torch's own allocator.

        Args:
            device: ``"cuda"`` is this rank's own device: the current one if the program has set one, the
                only visible one, else ``LOCAL_RANK``; never index 0 by accident.
            dtype: Cast floating tensors; what is cast becomes private memory.
            components: Only these components of the shard.
            eager: Read into fresh memory also on the CPU.
            prefetch: ``"ahead"`` brings the extents into the page cache on a thread behind this call;
                ``"node"`` before it returns, one process of the machine reading each extent while others
                wait, so that a cold start reads each byte once. Mapped loads only.
            verify: Check the CRC-32C of every block; default on where bytes are copied, off where they
                are mapped (it would read them all).
            out: Tensors to fill instead of new ones, by name: contiguous, of the same shape and type. The
                names decide what is loaded.
            group_bytes: Place tensors of up to this many bytes together into one allocation; not on the
                mapped path.
            progress: ``True``, ``False``, or a function ``(what, done, total)``; ``None`` shows a bar if
                tqdm is installed and stderr is a terminal.

        Raises:
            ChecksumMismatchError: a block is not what was written.
            TruncatedError: the file has become shorter.
            DeviceAmbiguousError, DeviceOutOfRangeError, NoDeviceError: see ``device``.
        """
        _torch.need()
        shard = self if components is None else self._narrow(components)
        target = next(iter(out.values())).device if out else _device.resolve(device)
        tell = choose(progress)
        if target.type == "meta":
            tensors = shard._meta()
        elif target.type == "cpu" and not eager and out is None:
            if verify:
                shard.verify(progress=progress)
            tensors = shard._mapped(prefetch, tell)
        else:
            load = _stage.load(shard._native, target, out=out, verify=verify is not False, group_bytes=group_bytes, progress=tell)
            tensors, self.stats = load
        return tensors if dtype is None else _torch.cast(tensors, dtype)

    def _mapped(self, prefetch: Prefetch | None, tell: Progress | None) -> dict[str, torch.Tensor]:
        if prefetch not in (None, "ahead", "node"):
            raise ValueError(f'prefetch is "ahead", "node" or None, not {prefetch!r}')
        with _torch.gc_paused():
            return self._native.tensors(_torch.from_dlpack(), _torch.dtypes(), prefetch, tell)

    def _meta(self) -> dict[str, torch.Tensor]:
        torch = _torch.need()
        out = {}
        for name in self._native.keys():
            dtype, shape, _ = self._native.describe(name)
            out[name] = torch.empty(shape, dtype=_torch.dtype_of(dtype, name), device="meta")
        return out

    def _narrow(self, components: str | Sequence[str]) -> RankShard:
        names = [components] if isinstance(components, str) else list(components)
        return RankShard(self._native.narrow(names), self.path)

    def load_into(
        self,
        model: nn.Module,
        strict: bool = True,
        assign: bool = True,
        *,
        device: str | int | torch.device | None = "cpu",
        dtype: torch.dtype | None = None,
        components: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Any:
        """Puts this rank's tensors into a model; returns torch's ``missing_keys`` and ``unexpected_keys``.

        With ``assign`` (the default) the model's parameters become the tensors themselves: no copy, and a
        model on the meta device becomes real. Names that are one parameter in the model stay one parameter,
        and a name is not missing if the shard has another name of the same parameter.

        Args:
            model: The model; on any device, the meta device too.
            strict: Missing or unexpected names are an error.
            assign: ``False`` copies into the parameters that are there.
            device, dtype, components: As for :meth:`state_dict`, which also takes ``options``.

        Raises:
            LoadIntoError: names or shapes differ; the text is torch's own.
        """
        tensors = self.state_dict(device, dtype, components, **options)
        return _load.load_into(model, tensors, strict, assign)

    def verify(self, threads: int = 0, progress: bool | Progress | None = None) -> VerifyReport:
        """Checks header, root, this rank's tables and every block that it reads.

        Of a shard of another world size or layout, the CRC-32C of every block that its slices come from.

        Raises:
            DamagedError: something is not what was written; ``error.damage`` lists it.
        """
        try:
            checked = self._native.check(list(range(len(self._native.entries()))), choose(progress))
        except ChecksumMismatchError as error:
            raise DamagedError(error.message, hint=error.hint, damage=[error.message]) from error
        if checked is not None:
            return VerifyReport(*checked)
        size, blocks, seconds, damage = self._native.verify(threads, choose(progress))
        if damage:
            raise DamagedError(
                f"{self.path} is damaged: " + "; ".join(damage[:5]) + (" ..." if len(damage) > 5 else ""),
                hint="copy the pack again, or convert the checkpoint again; do not train from this file",
                damage=damage,
            )
        return VerifyReport(size, blocks, seconds)

    def prefetch(self, node: bool = False, progress: bool | Progress | None = None) -> int:
        """Brings this rank's extents into the page cache with large reads; returns their bytes.

        With ``node``, one process of the machine reads each extent while the others wait for it.
        """
        return self._native.prefetch(node, choose(progress))

    def explain(self) -> Explanation:
        """What this shard costs, and which command would make a pack that costs nothing."""
        return Explanation(self.rank, self.world_size, *self._native.cost())

    def __repr__(self) -> str:
        return f"wpack.RankShard({self.path!r}, rank={self.rank}, world_size={self.world_size}, tensors={len(self)})"


__all__ = ["Explanation", "Pack", "RankShard", "Slice", "VerifyReport", "open"]
