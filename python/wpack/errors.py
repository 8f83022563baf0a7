"""One exception class for each kind of error, all under :class:`WpackError`.

``error.code`` is the stable kebab-case name that the command line prints with ``--json``; ``error.hint``,
where it is not ``None``, says what to do. A code that this version of the package does not know raises
:class:`WpackError` itself.
"""

from __future__ import annotations

from typing import Any

_BY_CODE: dict[str, type[WpackError]] = {}


class WpackError(Exception):
    """Base of all errors of wpack.

    Attributes:
        code: stable name of the kind of error.
        hint: what to do about it, if there is something.
        message: the facts, without the hint.
        report: for errors of :func:`wpack.verify`, the whole report.
    """

    code: str = "error"
    hint: str | None = None
    message: str = ""
    report: dict[str, Any] | None = None

    def __init__(self, message: str = "", hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __init_subclass__(cls, code: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if code is not None:
            cls.code = code
            _BY_CODE[code] = cls

    def __str__(self) -> str:
        if self.hint:
            return f"{self.message}\nhint: {self.hint}"
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.hint, self.code)


def from_code(code: str, message: str, hint: str | None = None) -> WpackError:
    """The exception of a code; :class:`WpackError` for one that is not known here."""
    return _BY_CODE.get(code, WpackError)(message, hint, code)


class ClosedError(WpackError, ValueError, code="closed"):
    """The pack was closed."""


class DifferentError(WpackError, code="differs"):
    """A pack's tensors are not those that the checkpoint gives."""


class RegistryError(WpackError, code="registry"):
    """The list of registered packs cannot be read, or a pack cannot be registered or compared."""


# The rank and its device.


class RankError(WpackError, code="rank"):
    """The rank or world size is missing, unreadable, or out of range."""


class DeviceAmbiguousError(WpackError, code="device-ambiguous"):
    """Several devices are visible and nothing says which one is this process's."""


class DeviceOutOfRangeError(WpackError, code="device-out-of-range"):
    """``LOCAL_RANK`` is no index of a visible device."""


class NoDeviceError(WpackError, code="no-device"):
    """No device of the type asked for is visible."""


# Tensors and models.


class UnknownTensorError(WpackError, KeyError, code="unknown-tensor"):
    """The rank's shard has no tensor of that name."""

    __str__ = WpackError.__str__


class AmbiguousTensorError(WpackError, code="ambiguous-tensor"):
    """Several components have a tensor of that name."""


class UnknownComponentError(WpackError, KeyError, code="unknown-component"):
    """The pack has no component of that name."""

    __str__ = WpackError.__str__


class UnsupportedDTypeError(WpackError, TypeError, code="dtype-unsupported"):
    """The library asked for has no such element type; the bytes are still to be had."""


class StateDictCollisionError(WpackError, code="state-dict-collision"):
    """Two components give the same key in one state dict. Open them one by one."""


class LoadIntoError(WpackError, RuntimeError, code="load-into"):
    """The names or shapes of model and shard differ; the text is torch's own."""


class OutputTensorError(WpackError, ValueError, code="output-tensor"):
    """A tensor of ``out=`` has another shape, element type or device, or is not contiguous."""


class TorchMissingError(WpackError, ImportError, code="torch-missing"):
    """This needs torch, which is not installed."""


# Files.


class DamagedError(WpackError, code="damaged"):
    """A check found bytes that are not those that were written; ``damage`` lists them."""

    def __init__(
        self,
        message: str = "",
        hint: str | None = None,
        code: str | None = None,
        damage: list[str] | None = None,
    ) -> None:
        super().__init__(message, hint, code)
        self.damage: list[str] = damage or []

# Packfiles.


class NotAPackfileError(WpackError, code="not-a-packfile"):
    """The file does not start with a packfile's magic."""


class UnsupportedVersionError(WpackError, code="unsupported-version"):
    """The packfile's format version is one that this package does not read."""


class TruncatedError(WpackError, code="truncated"):
    """A file ends before the bytes that its index promises."""


class TrailingBytesError(WpackError, code="trailing-bytes"):
    """A file is longer than its index says."""


class ReservedBitsError(WpackError, code="reserved-bits"):
    """The packfile uses a feature that this package does not know."""


class MalformedPackError(WpackError, code="malformed-pack"):
    """The packfile's index makes no sense: its writer was faulty."""


class InconsistentIndexError(WpackError, code="inconsistent-index"):
    """The packfile's index contradicts itself."""


class ChecksumMismatchError(WpackError, code="checksum-mismatch"):
    """A block's bytes are not those that were written."""


class DigestMismatchError(WpackError, code="digest-mismatch"):
    """An embedded file is not what was embedded."""


class ChangedWhileReadError(WpackError, code="changed-while-read"):
    """The file was changed or cut while it was in use."""


class UnknownExtentError(WpackError, code="unknown-extent"):
    """The pack has no extent of that number."""


class NotStoredError(WpackError, code="not-stored"):
    """A tensor that the layout wants is not in the pack in that form."""


class PlanTransformsError(WpackError, ValueError, code="plan-transforms"):
    """A plan to open a pack with renames, merges, pads or casts what the pack holds."""


# Reading and mapping.


class IoError(WpackError, OSError, code="io"):
    """The system refused to open or read a file."""


class MapError(WpackError, OSError, code="map"):
    """The kernel refused the mapping."""


class OutOfMemoryError(WpackError, MemoryError, code="out-of-memory"):
    """Memory could not be had."""


class UnalignedError(WpackError, code="unaligned"):
    """Bytes in memory are not aligned for their type."""


class WrongTypeError(WpackError, TypeError, code="wrong-type"):
    """The elements are of another type than the one asked for."""


class RingBudgetError(WpackError, ValueError, code="ring-budget"):
    """The ring's budget is smaller than one slot."""


class DeviceError(WpackError, code="device"):
    """A device failed while bytes were copied to it."""


class WrongMemoryError(WpackError, code="wrong-memory"):
    """Memory of another number or length was given than is to be filled."""


class ReaderLostError(WpackError, code="reader-lost"):
    """A reader thread ended without a result."""


class ThreadsError(WpackError, code="threads"):
    """The system would not start threads."""


class InterruptedError(WpackError, code="interrupted"):
    """The work was interrupted."""


# Requests.


class UsageError(WpackError, ValueError, code="usage"):
    """Arguments that make no sense, or none of that name."""


class GlobError(WpackError, ValueError, code="glob"):
    """A pattern is no glob."""


class PatternError(WpackError, ValueError, code="pattern"):
    """A pattern cannot be read."""


class PatternUnusedError(WpackError, ValueError, code="pattern-unused"):
    """A pattern matches no tensor."""


class PatternsDisagreeError(WpackError, ValueError, code="patterns-disagree"):
    """A tensor is asked to be both kept whole and cut."""


class NoComponentError(WpackError, KeyError, code="no-component"):
    """There is no component of that name."""

    __str__ = WpackError.__str__


class RankOutsideMeshError(WpackError, ValueError, code="rank-outside-mesh"):
    """The rank is not one of the mesh."""


class MeshSyntaxError(WpackError, ValueError, code="mesh-syntax"):
    """The mesh cannot be read."""


class TooManyRanksError(WpackError, ValueError, code="too-many-ranks"):
    """The mesh has more ranks than the format allows."""


class NoRanksError(WpackError, ValueError, code="no-ranks"):
    """A mesh without ranks."""


class RanksDisagreeError(WpackError, ValueError, code="ranks-disagree"):
    """The number of ranks and the mesh disagree."""


class RanksMissingError(WpackError, ValueError, code="ranks-missing"):
    """The layout needs a number of ranks or a mesh."""


class UnknownLayoutError(WpackError, ValueError, code="unknown-layout"):
    """There is no layout of that name."""


class AxisMissingError(WpackError, ValueError, code="axis-missing"):
    """The mesh lacks an axis that the layout cuts over."""


class AxisUnusedError(WpackError, ValueError, code="axis-unused"):
    """The mesh has an axis that no layout uses."""


class AxisTakenError(WpackError, ValueError, code="axis-taken"):
    """Two layouts cut over one axis."""


class CannotCutError(WpackError, code="cannot-cut"):
    """A tensor cannot be cut as the layout wants."""


class OrderUnknownError(WpackError, code="order-unknown"):
    """The layout depends on an order of parameters that nothing gives."""


class MixedTypesError(WpackError, code="mixed-types"):
    """Tensors that the layout puts into one stream are of several types."""


class NoRuleError(WpackError, code="no-rule"):
    """The layout has no rule for a tensor."""


class RulesError(WpackError, code="rules"):
    """The rules of a plan cannot be applied."""


class PlanFileError(WpackError, ValueError, code="plan-file"):
    """The plan file cannot be read."""


class JoinError(WpackError, ValueError, code="join"):
    """Tensors cannot be put together or made longer as the plan file says."""


class NoExtentError(WpackError, code="no-extent"):
    """The plan has no extent of that number."""


class DuplicateComponentError(WpackError, code="duplicate-component"):
    """Two components have one name."""


class DuplicateTensorError(WpackError, code="duplicate-tensor"):
    """Two tensors of a component have one name."""


class UnnamedTensorError(WpackError, code="unnamed-tensor"):
    """A tensor has no name."""


class TensorSizeError(WpackError, code="tensor-size"):
    """A tensor's size does not fit."""


class TooManyDimsError(WpackError, code="too-many-dims"):
    """A tensor has more dimensions than the format allows."""


class TotalSizeError(WpackError, code="total-size"):
    """The pack would be larger than a file can be."""


class TooManySlicesError(WpackError, code="too-many-slices"):
    """The pack would have more slices than the format allows."""


# Checkpoints.


class NoInputError(WpackError, FileNotFoundError, code="no-input"):
    """No file matches the input."""


class SeveralComponentsError(WpackError, code="several-components"):
    """The input has several components where one is wanted."""


class NotACheckpointError(WpackError, code="not-a-checkpoint"):
    """The file is no checkpoint."""


class UnsupportedFormatError(WpackError, code="unsupported-format"):
    """The checkpoint is of a format that is not read."""


class HeaderTooLargeError(WpackError, code="header-too-large"):
    """The checkpoint's header is larger than its format allows."""


class BadHeaderError(WpackError, code="bad-header"):
    """The checkpoint's header makes no sense."""


class DuplicateKeyError(WpackError, code="duplicate-key"):
    """A name is in the checkpoint twice."""


class HoleError(WpackError, code="hole"):
    """The checkpoint has bytes that belong to no tensor."""


class OverlapError(WpackError, code="overlap"):
    """Tensors of the checkpoint overlap where they must not."""


class SizeMismatchError(WpackError, code="size-mismatch"):
    """A tensor's bytes do not fit its type and shape."""


class OutOfBoundsError(WpackError, code="out-of-bounds"):
    """A tensor's bytes lie outside of its storage."""


class CorruptError(WpackError, code="corrupt"):
    """A checksum inside the checkpoint does not match."""


class AmbiguousArchiveError(WpackError, code="ambiguous-archive"):
    """The checkpoint's archive can be read in two ways."""


class AmbiguousRootError(WpackError, code="ambiguous-root"):
    """Several state dicts are in the checkpoint; name one with root=."""


class NoSuchRootError(WpackError, code="no-such-root"):
    """The checkpoint has no state dict at that path."""


class BadIndexError(WpackError, code="bad-index"):
    """The checkpoint's index file makes no sense."""


class MissingShardError(WpackError, code="missing-shard"):
    """A file that the checkpoint's index names is not there."""


class MissingTensorError(WpackError, code="missing-tensor"):
    """A tensor that the checkpoint's index names is not there."""


class MissingStorageError(WpackError, code="missing-storage"):
    """The bytes of a tensor are not in the checkpoint."""


class NameCollisionError(WpackError, code="name-collision"):
    """Two tensors would have one name."""


class NoTensorsError(WpackError, code="no-tensors"):
    """The checkpoint has no tensors."""


class PartitionedError(WpackError, code="partitioned"):
    """The checkpoint is one part of several."""


class ResourceLimitError(WpackError, code="resource-limit"):
    """Reading the checkpoint would take memory out of proportion to its size."""


class UnsafePathError(WpackError, code="unsafe-path"):
    """The checkpoint names a path outside of its folder."""


class MalformedPickleError(WpackError, code="malformed-pickle"):
    """The checkpoint's pickle cannot be read."""


class UnsafePickleError(WpackError, code="unsafe-pickle"):
    """The checkpoint's pickle would run code; nothing was run."""


class UnsupportedDtypeError(WpackError, code="unsupported-dtype"):
    """The checkpoint has an element type that is not supported."""


class UnsupportedEndianError(WpackError, code="unsupported-endian"):
    """The checkpoint is big-endian."""


class UnsupportedLayoutError(WpackError, code="unsupported-layout"):
    """The checkpoint has a tensor that is not strided."""


class UnsupportedObjectError(WpackError, code="unsupported-object"):
    """The checkpoint has an object that is not a tensor where one is wanted."""


# Converting.


class CastUnsupportedError(WpackError, code="cast-unsupported"):
    """There is no cast between these element types."""


class CastLengthError(WpackError, code="cast-length"):
    """The bytes to cast are no whole number of elements."""


class TargetDtypeError(WpackError, ValueError, code="target-dtype"):
    """There is no element type of that name to cast to."""


class NothingLeftError(WpackError, ValueError, code="nothing-left"):
    """The filters leave no tensor."""


class EmptyNameError(WpackError, ValueError, code="empty-name"):
    """A rename leaves an empty name."""


class AlignError(WpackError, ValueError, code="align"):
    """The alignment is not a power of two within the format's bounds."""


class TooLargeError(WpackError, code="too-large"):
    """The pack would be larger than a file can be."""


class TargetExistsError(WpackError, FileExistsError, code="target-exists"):
    """The file to write is there already."""


class OutputExistsError(WpackError, FileExistsError, code="output-exists"):
    """A file to write is there already."""


class TargetNotAFileError(WpackError, OSError, code="target-not-a-file"):
    """What is to be written over is no file."""


class TargetIsSourceError(WpackError, ValueError, code="target-is-source"):
    """The file to write is one of the sources."""


class SourceChangedError(WpackError, code="source-changed"):
    """A source file changed while it was read."""


class NoSpaceError(WpackError, OSError, code="no-space"):
    """There is not enough room on the disk."""


class TargetIoError(WpackError, OSError, code="target-io"):
    """The file could not be written."""


class ReadError(WpackError, OSError, code="read"):
    """A file that an option names could not be read."""


class WriteError(WpackError, OSError, code="write"):
    """A file could not be written."""


class InconsistentPlanError(WpackError, code="inconsistent-plan"):
    """The plan contradicts itself; this is a fault of wpack."""


class NotExportableError(WpackError, code="not-exportable"):
    """safetensors has no such element type."""


class IncompleteError(WpackError, code="incomplete"):
    """The pack does not hold the whole of a tensor."""


class StdoutError(WpackError, OSError, code="stdout"):
    """Standard output could not be written."""


class SignalsError(WpackError, OSError, code="signals"):
    """Signal handlers could not be installed."""


class InternalError(WpackError, code="internal"):
    """A fault of wpack."""
