"""One sequence-parallel group of all ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class _Group:
    def all_gather(self, tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """All ranks' tensors along a dimension."""
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts, dim=dim)


def init_distributed_environment(rank: int, world_size: int, **options: Any) -> None:
    """The process group is there already."""
    assert (rank, world_size) == (dist.get_rank(), dist.get_world_size())


def initialize_model_parallel(sequence_parallel_degree: int, **options: Any) -> None:
    """All ranks are one group."""
    assert sequence_parallel_degree == dist.get_world_size()


def get_sequence_parallel_world_size() -> int:
    """Ranks of the group."""
    return dist.get_world_size()


def get_sequence_parallel_rank() -> int:
    """This process's place in it."""
    return dist.get_rank()


def get_sp_group() -> _Group:
    """The group."""
    return _Group()
