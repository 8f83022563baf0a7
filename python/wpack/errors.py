"""One exception class for each kind of error, all under :class:`WpackError`.

``error.code`` is the stable kebab-case name that the command line prints with ``--json``; ``error.hint``,
where it is not ``None``, says what to do. A code that this version of the package does not know raises
:class:`WpackError` itself.
"""

from __future__ import annotations

from typing import Any, ClassVar

_BY_CODE: dict[str, type[WpackError]] = {}


class WpackError(Exception):
    """Base of all errors of wpack.

    Attributes:
        code: stable name of the kind of error.
        hint: what to do about it, if there is something.
        message: the facts, without the hint.
    """

    code: str = "error"
    hint: str | None = None
    message: str = ""
    _codes: ClassVar[tuple[str, ...]] = ()

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


class NameCollisionError(WpackError, code="state-dict-collision"):
    """Two components give the same key in one state dict."""


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
