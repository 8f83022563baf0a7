"""xfuser where there is no GPU: all of it but its kernels, over gloo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from diffsynth.utils.xfuser import xdit_context_parallel
from xfuser.core.distributed import get_sp_group, parallel_state


@contextmanager
def over_gloo() -> Iterator[None]:
    """Groups use gloo, and attention needs no kernel. The device that xfuser sets goes the way of all others: it binds
    CUDA's function when it is imported."""
    with (
        mock.patch.object(xdit_context_parallel, "xFuserLongContextAttention", Gathered),
        mock.patch.object(parallel_state, "set_device", lambda index: torch.cuda.set_device(index)),
        mock.patch.object(parallel_state.envs, "get_torch_distributed_backend", lambda: "gloo"),
    ):
        yield


class Gathered:
    """In place of ``xFuserLongContextAttention``: the same result, by gathering keys and values."""

    def __init__(self, **options: Any) -> None:
        """Kernels are chosen by options, which mean nothing here."""

    def __call__(self, attn: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Tensors are (batch, sequence, heads, size)."""
        group = get_sp_group()
        key, value = (group.all_gather(tensor.contiguous(), dim=1) for tensor in (key, value))
        q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
