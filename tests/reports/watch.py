"""Watches the memory that a process and all that it starts have of their own, and ends them at a limit.

Anonymous memory alone: pages of files can be read again, so they never end a machine. Unlike a memory cgroup
this needs no privilege, and nothing else on the machine has to give way.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# Seconds between two looks, and between two looks for new processes.
_STEP, _LOOK = 0.02, 0.3


class Exceeded(Exception):
    """The limit was passed, and everything that ran was ended."""

    def __init__(self, found: int, seconds: float) -> None:
        super().__init__(f"{found} bytes after {seconds:.1f} s")
        self.found = found
        self.seconds = seconds


class Watch:
    """Runs commands as ``subprocess.run`` does."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        #: The most that all of the processes had at one moment.
        self.peak = 0
        #: Processor time of all of them that have ended, and seconds that the last command took.
        self.processor = self.seconds = 0.0

    def __call__(
        self,
        command: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        prepare: Callable[[], None] | None = None,
        **_: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Runs one; its output is captured. ``prepare`` is called in it, before it starts.

        Raises:
            Exceeded: it and what it started had more than the limit.
        """
        began, before = time.monotonic(), os.times()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, env=env, cwd=cwd, stdout=out, stderr=errors, preexec_fn=prepare)
            try:
                self._until_done(process, began, timeout)
            except BaseException:
                for pid in tree(process.pid):
                    _end(pid)
                process.wait()
                raise
            after = os.times()
            self.seconds = time.monotonic() - began
            self.processor = after[2] + after[3] - before[2] - before[3]
            for file in (out, errors):
                file.seek(0)
            return subprocess.CompletedProcess(command, process.returncode, out.read(), errors.read())

    def _until_done(self, process: subprocess.Popen[bytes], began: float, timeout: float) -> None:
        looked, pids = 0.0, [process.pid]
        while process.poll() is None:
            now = time.monotonic()
            if now - began > timeout:
                raise subprocess.TimeoutExpired(process.args, timeout)
            if now - looked > _LOOK:
                looked, pids = now, tree(process.pid)
            found = sum(own_memory(pid) for pid in pids)
            self.peak = max(self.peak, found)
            if self.limit is not None and found > self.limit:
                raise Exceeded(found, now - began)
            time.sleep(_STEP)


def own_memory(pid: int) -> int:
    """Bytes of anonymous memory of a process, shared anonymous memory included; 0 if it is no more."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def tree(root: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
