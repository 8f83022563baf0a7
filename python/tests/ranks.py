"""Ranks as forked processes over gloo: importing the frameworks is most of a test's time, and is done once."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def run(world: int, work: Callable[..., Any], folder: Path, *args: Any) -> list[Any]:
    """Runs ``work(rank, world, *args)`` in ``world`` processes; returns what each returned.

    ``torch.distributed`` is set up there. The first rank that fails ends the others.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sys.stdout.flush()
    left = {}
    for rank in range(world):
        child = os.fork()
        if child == 0:
            os._exit(_rank(rank, world, port, folder, work, args))
        left[child] = rank
    failed = None
    while left:
        child, status = os.waitpid(-1, 0)
        rank = left.pop(child, None)
        if rank is not None and status and failed is None:
            failed = rank
            for other in left:
                os.kill(other, 9)
    if failed is not None:
        raise AssertionError(f"rank {failed} of {world} failed:\n{_text(folder / f'{failed}.error')}")
    return [pickle.loads((folder / f"{rank}.result").read_bytes()) for rank in range(world)]


def _rank(rank: int, world: int, port: int, folder: Path, work: Callable[..., Any], args: tuple[Any, ...]) -> int:
    try:
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(world),
            LOCAL_WORLD_SIZE=str(world),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        if not dist.is_initialized():
            dist.init_process_group("gloo", rank=rank, world_size=world)
        result = work(rank, world, *args)
        (folder / f"{rank}.result").write_bytes(pickle.dumps(result))
        dist.barrier()
        return 0
    except BaseException:  # the child must not return into the parent's stack
        (folder / f"{rank}.error").write_text(traceback.format_exc())
        return 1


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else "(it was killed)"
