"""numpy arrays over mapped memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import UnsupportedDTypeError

if TYPE_CHECKING:
    import numpy

    from ._wpack import View

# Types that numpy itself lacks and ml_dtypes has.
_ML = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}


def array(view: View, name: str) -> numpy.ndarray[Any, Any]:
    """The array of a view, without a copy."""
    import numpy

    raw: numpy.ndarray[Any, Any] = numpy.asarray(view)
    if raw.dtype.kind != "V":
        return raw
    if view.dtype in _ML:
        try:
            import ml_dtypes
        except ImportError:
            pass
        else:
            named: numpy.ndarray[Any, Any] = raw.view(getattr(ml_dtypes, _ML[view.dtype]))
            return named
    raise UnsupportedDTypeError(
        f"tensor `{name}` holds {view.dtype}, which numpy has no type for",
        hint=f"pip install ml_dtypes, or take raw records: numpy.asarray(shard.view({name!r}))",
    )
