"""A state dict into a model, ties kept."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ._torch import need
from .errors import LoadIntoError

if TYPE_CHECKING:
    import torch
    from torch import nn


def ties(model: nn.Module) -> list[list[str]]:
    """Groups of names that are one parameter or one buffer of the model."""
    groups: dict[int, list[str]] = {}
    for name, tensor in _named(model):
        groups.setdefault(id(tensor), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _named(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]


def load_into(model: nn.Module, tensors: dict[str, torch.Tensor], strict: bool, assign: bool) -> Any:
    """``model.load_state_dict`` with two additions.

    Names that are one parameter in the model stay one parameter (with ``assign=True`` torch alone gives
    each name its own), and a name is not missing if the shard has another name of the same parameter.
    """
    need()
    tied = ties(model)
    state = dict(tensors)
    chosen: list[tuple[str, list[str]]] = []
    for names in tied:
        given = [name for name in names if name in tensors]
        if not given:
            continue
        # Where the shard gives several, the last one counts, as when torch copies them in turn.
        chosen.append((given[-1], names))
        for name in names:
            state.setdefault(name, tensors[given[-1]])
    try:
        result = model.load_state_dict(state, strict=strict, assign=assign)
    except RuntimeError as error:
        raise LoadIntoError(str(error)) from error
    if assign:
        for source, names in chosen:
            _tie(model, source, names)
    left = sorted(name for name, tensor in _named(model) if tensor.is_meta)
    if left:
        shown = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
        warnings.warn(
            f"still on the meta device after loading, because the shard has no such name: {shown}. "
            "Buffers that a checkpoint leaves out must be computed by the model on a real device",
            stacklevel=3,
        )
    return result


def _tie(model: nn.Module, source: str, names: list[str]) -> None:
    owner, _, leaf = source.rpartition(".")
    tensor = getattr(model.get_submodule(owner), leaf)
    for name in names:
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        kept = module._parameters if leaf in module._parameters else module._buffers
        kept[leaf] = tensor
