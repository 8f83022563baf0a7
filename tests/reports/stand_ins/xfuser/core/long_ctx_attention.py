"""Attention over a sequence that is spread over the ranks, by gathering keys and values."""

from __future__ import annotations

from typing import Any

import torch

from .distributed import get_sp_group


class xFuserLongContextAttention:  # noqa: N801
    """The same result as the kernels that need a GPU."""

    def __init__(self, **options: Any) -> None:
        """Kernels are chosen by options, which mean nothing here."""

    def __call__(self, attn: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Tensors are (batch, sequence, heads, size)."""
        group = get_sp_group()
        key, value = group.all_gather(key, dim=1), group.all_gather(value, dim=1)
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
