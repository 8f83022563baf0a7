"""
Native parts of wpack.
"""

from _typeshed import SupportsGetItem
from os import PathLike
from typing import Any, Final, SupportsIndex, final

__all__ = ["__version__", "NativePack", "NativeShard", "View", "run_command", "run_json"]

__version__: Final[str]
"""
Version of the package.
"""

@final
class NativePack:
    """
    An open pack: header and index, checked; no data has been read.
    """
    def __new__(cls, /, path: str | PathLike[str], read_only: bool = False) -> NativePack:
        """
        Opens a file: its exact length, header and root are checked.
        """
    @property
    def components(self, /) -> list[str]:
        """
        Names of the components, in file order.
        """
    @property
    def digest(self, /) -> str:
        """
        SHA-256 of the root, lower-case hexadecimal: the pack's identity.
        """
    @property
    def extents(self, /) -> list[tuple[str, int, int, bool]]:
        """
        Extents: component, first byte in the file, bytes, and whether every rank holds it.
        """
    def file(self, /, path: str, component: str | None = None) -> bytes | None:
        """
        Contents of an embedded file, its SHA-256 checked; `None` if there is none of that name.
        """
    @property
    def files(self, /) -> list[tuple[str | None, str, int]]:
        """
        Embedded files: component (`None` for the pack's own), path, bytes.
        """
    @property
    def layout(self, /) -> str:
        """
        Layout it was made for.
        """
    @property
    def layouts(self, /) -> list[tuple[str, str]]:
        """
        Layout of each component.
        """
    @property
    def mesh(self, /) -> list[tuple[str, int]] | None:
        """
        Axes of the mesh and ranks along each, the last varies fastest; `None` for a pack that fits any
        number of ranks.
        """
    def metadata(self, /, component: str | None = None) -> dict:
        """
        The pack maker's text metadata, or a component's checkpoint metadata.
        """
    @property
    def nbytes(self, /) -> int:
        """
        Bytes of the file.
        """
    @staticmethod
    def ranks(mesh: str | None = None, plan: str | None = None) -> int | None:
        """
        Ranks that a mesh or the text of a plan file speaks of; `None` if neither says.
        """
    def shard(self, /, rank: SupportsIndex, world_size: SupportsIndex, layout: str | None = None, components: SupportsGetItem[int, str] | None = None, mesh: str | None = None, plan: str | None = None) -> NativeShard:
        """
        What a rank holds: reads and checks its own tables. For another world size, mesh, layout or plan
        than the pack's: those of all ranks.
        """
    def source_names(self, /, component: str) -> list[tuple[str, str]]:
        """
        Names in a component's checkpoint and in the pack, in file order, ties included.
        """
    def sources(self, /, component: str) -> list[tuple[str, int, str | None]]:
        """
        Files that a component was made from: base name, bytes, and SHA-256 in lower-case hexadecimal if it
        was recorded.
        """
    @property
    def world_size(self, /) -> int | None:
        """
        Ranks of the mesh; `None` for a pack that fits any number.
        """

@final
class NativeShard:
    """
    The tensors of one rank.
    """
    def __contains__(self, key: str, /) -> bool: ...
    def __len__(self, /) -> int: ...
    def check(self, /, wanted: SupportsGetItem[int, SupportsIndex], progress: Any | None = None) -> tuple[int, int, float] | None:
        """
        Checks the blocks that slices of another mesh or layout, given by their positions, come from;
        their bytes, the blocks, and seconds. `None` for the pack's own slices.
        """
    def cost(self, /) -> tuple[str, bool, int, int, int, str | None]:
        """
        What the shard costs: layout, whether the pack was made for it, bytes mapped, bytes and tensors
        gathered, and the command for a fitting pack.
        """
    def describe(self, /, key: str) -> tuple[str, list[int], int]:
        """
        Element type, shape and bytes of a tensor.
        """
    def entries(self, /) -> list[tuple[int, list[str], str, list[int], int]]:
        """
        What can be loaded: position, names, element type, shape and bytes of each tensor.
        """
    def keys(self, /) -> list[str]:
        """
        All names, ties included, in file order.
        """
    def narrow(self, /, components: SupportsGetItem[int, str]) -> NativeShard:
        """
        The same for some components only, with their names as when these were asked for at first.
        """
    def prefetch(self, /, node: bool = False, progress: Any | None = None) -> int:
        """
        Brings this rank's extents into the page cache and the page table by read faults; returns their
        bytes. With `node`, one process of the machine at a time brings in an extent and others wait for it.
        """
    @property
    def rank(self, /) -> int:
        """
        The rank.
        """
    def read(self, /, wanted: SupportsGetItem[int, SupportsIndex], memory: SupportsGetItem[int, tuple[SupportsIndex, SupportsIndex]], verify: bool = True, progress: Any | None = None) -> dict | None:
        """
        Loads tensors, given by their positions, into memory of this process: `memory` holds address and
        length of each.
        """
    def stage(self, /, wanted: SupportsGetItem[int, SupportsIndex], sink: Any, budget: SupportsIndex, verify: bool = True, progress: Any | None = None) -> dict | None:
        """
        Loads tensors, given by their positions, through the ring of a `wpack._stage.Sink`, whose
        destinations are in the same order. With `verify`, every byte's CRC-32C is checked before it moves.
        `None` for slices of another mesh or layout, which do not go through the ring.
        """
    def tensor(self, /, key: str, convert: Any, dtypes: dict) -> Any:
        """
        One tensor through a framework's DLPack import; see [`NativeShard::tensors`].
        """
    def tensors(self, /, convert: Any, dtypes: dict, prefetch: str | None = None, progress: Any | None = None) -> dict:
        """
        A dict of all tensors, each over memory of its own in mappings that nothing else uses.

        `convert` takes a DLPack capsule; `dtypes` are the framework's element types by the pack's names.
        `prefetch` is `"ahead"`, `"node"` or nothing.
        """
    def verify(self, /, threads: SupportsIndex = 0, progress: Any | None = None) -> tuple[int, int, float, list[str]]:
        """
        Checks header, root, tables and every block that this rank reads; what is damaged.
        """
    def view(self, /, key: str) -> View:
        """
        A tensor's memory for numpy and DLPack consumers.
        """
    @property
    def world_size(self, /) -> int:
        """
        Ranks of the world it is one of.
        """

@final
class View:
    """
    One tensor of a shard, over the pack's own memory.

    Works without torch: `numpy.asarray(view)`, `numpy.from_dlpack(view)`, `jax.numpy.from_dlpack(view)` and
    any other DLPack consumer see the mapping itself, which lives as long as what they made of it.
    """
    @property
    def __array_interface__(self, /) -> dict:
        """
        numpy's array interface, version 3. Types that numpy lacks (bfloat16, fp8) come as raw records of
        their width, packed fp4 as bytes.
        """
    def __dlpack__(self, /, *, stream: Any | None = None, max_version: tuple[SupportsIndex, SupportsIndex] | None = None, dl_device: tuple[SupportsIndex, SupportsIndex] | None = None, copy: bool | None = None) -> Any:
        """
        A DLPack capsule, versioned if the consumer's `max_version` is 1.0 or later.

        Raises:
            BufferError: a copy was asked for, another device, or read-only memory by a consumer that cannot
                know it is.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        Device of the memory: the CPU.
        """
    def __repr__(self, /) -> str: ...
    def bytes(self, /) -> bytes:
        """
        A copy of the bytes.
        """
    @property
    def dtype(self, /) -> str:
        """
        Element type, as safetensors names it: `"BF16"`.
        """
    @property
    def nbytes(self, /) -> int:
        """
        Bytes.
        """
    @property
    def read_only(self, /) -> bool:
        """
        True where the pack was opened with `read_only=True`: a write would end the process.
        """
    @property
    def shape(self, /) -> tuple:
        """
        Elements per dimension; two packed fp4 values count as one.
        """

def run_command(args: SupportsGetItem[int, str]) -> int:
    """
    Runs the command line as the `wpack` binary does; the first argument is the program's name. Returns
    the exit status.
    """

def run_json(args: SupportsGetItem[int, str], progress: Any | None = None) -> tuple[int, str]:
    """
    Runs a command and returns its exit status and its JSON report; nothing is printed.
    """
