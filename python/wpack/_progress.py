"""Progress on standard error, where someone can see it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Progress = Callable[[str, int, int], object]
"""Called with the stage's name, bytes done, bytes in all; at most ten times a second, from the calling
thread. Raising ends the work and passes the exception on."""


def choose(progress: bool | Progress | None) -> Progress | None:
    """The function to tell.

    ``None`` shows a bar when tqdm is installed and standard error is a terminal, ``True`` whenever tqdm is
    installed, ``False`` nothing; a function is told itself.
    """
    if progress is False:
        return None
    if callable(progress):
        return progress
    if progress is None and not (sys.stderr is not None and sys.stderr.isatty()):
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return _Bar(tqdm)


class _Bar:
    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._bar: Any = None
        self._what = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._bar is None or what != self._what:
            self.close()
            self._what = what
            self._bar = self._tqdm(total=total, desc=what, unit="B", unit_scale=True, leave=False)
        self._bar.update(done - self._bar.n)
        if done >= total:
            self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __del__(self) -> None:
        self.close()
