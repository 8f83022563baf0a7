"""Which rank this process is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from .errors import RankError


def find(environ: Mapping[str, str] | None = None) -> tuple[int, int] | None:
    """Rank and world size, from ``torch.distributed`` if it is initialised, else from ``RANK`` and
    ``WORLD_SIZE``; ``None`` where neither says.

    Raises:
        RankError: ``RANK`` without ``WORLD_SIZE``, or one that is no number or out of range.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    env = os.environ if environ is None else environ
    if "RANK" not in env:
        return None
    rank = _number(env, "RANK")
    if "WORLD_SIZE" not in env:
        raise RankError("RANK is set and WORLD_SIZE is not", hint="start with torchrun, or pass rank= and world_size=")
    size = _number(env, "WORLD_SIZE")
    return check(rank, size)


def check(rank: int, world_size: int) -> tuple[int, int]:
    """The two as they are, if the rank is one of the world."""
    if world_size < 1 or not 0 <= rank < world_size:
        raise RankError(f"rank {rank} is not one of a world of {world_size} ranks")
    return rank, world_size


def _number(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError:
        raise RankError(f"{name} is {env[name]!r}, not a number") from None
