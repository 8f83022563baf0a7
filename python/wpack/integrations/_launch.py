"""Runs a script as ``python SCRIPT`` would."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence


def run_script(script: str, args: Sequence[str]) -> None:
    """Runs ``script`` as ``__main__`` with ``args``; its own folder is first on the path, in the place of
    the folder that ``python -m`` puts there."""
    sys.argv = [script, *args]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
