"""Frozen weights that every rank maps from the same pack need no broadcast.

DDP and DeepSpeed broadcast all parameters when they wrap a model. For mapped weights that would write
every page and so make a private copy in each process. A parameter is left out only if it is proven
equal on all ranks: it does not require a gradient, every rank has it at the same place of a pack of the
same root digest, and no rank has written to any page of it. Whatever fails is broadcast as usual.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._pages import MappedPacks, unwritten

if TYPE_CHECKING:
    import torch
    from torch import nn


def shared_frozen(model: nn.Module, group: Any = None) -> list[str]:
    """Names of the parameters that are proven equal on all ranks of ``group``.

    Collective: every rank of the group must call it, on models with the same parameter names. All ranks
    get the same list.
    """
    mine = _claims(model.named_parameters())
    claims = _gather(mine, group)
    return [name for name, claim in mine.items() if all(other.get(name) == claim for other in claims)]


def _claims(parameters: Iterable[tuple[str, torch.Tensor]]) -> dict[str, tuple[str, int, str, int]]:
    """What this rank can prove of each frozen parameter: pack, place in it, type and size."""
    packs = MappedPacks()
    claims = {}
    for name, parameter in parameters:
        if parameter.requires_grad:
            continue
        origin = packs.origin(parameter)
        if origin is not None and unwritten(parameter):
            claims[name] = (*origin, str(parameter.dtype), parameter.numel())
    return claims


def _gather(mine: dict[str, Any], group: Any) -> list[dict[str, Any]]:
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return [mine]
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, mine, group=group)
    return everyone


class Guard:
    """Keeps proven-equal weights out of the first broadcast of DDP and DeepSpeed."""

    def __init__(self) -> None:
        #: Names left out by each call, latest last; for tests and for people who wonder.
        self.kept: list[list[str]] = []
        self._undo: list[Any] = []

    def install(self) -> None:
        """Wraps ``DistributedDataParallel`` and, once it is imported, ``DeepSpeedEngine``. Twice is once."""
        if self._undo:
            return
        self._wrap_ddp()
        self._wrap_deepspeed()

    def uninstall(self) -> None:
        """Puts the originals back."""
        while self._undo:
            owner, name, original = self._undo.pop()
            setattr(owner, name, original)

    def _wrap_ddp(self) -> None:
        from torch.nn.parallel import DistributedDataParallel

        original = DistributedDataParallel.__init__
        guard = self

        def init(ddp: Any, module: nn.Module, *args: Any, **options: Any) -> None:
            names = shared_frozen(module, options.get("process_group"))
            guard.kept.append(names)
            if names:
                before = list(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
                module._ddp_params_and_buffers_to_ignore = before + [n for n in names if n not in before]
            original(ddp, module, *args, **options)

        self._replace(DistributedDataParallel, "__init__", init)

    def _wrap_deepspeed(self) -> None:
        try:
            from deepspeed.runtime.engine import DeepSpeedEngine
        except ImportError:
            return
        original = DeepSpeedEngine._broadcast_model
        guard = self

        def broadcast(engine: Any) -> None:
            names = shared_frozen(engine.module, getattr(engine, "seq_data_parallel_group", None))
            guard.kept.append(names)
            parameters = dict(engine.module.named_parameters())
            # The mark that DeepSpeed itself reads as "differs from rank to rank, do not broadcast".
            marked = [parameters[name] for name in names if not hasattr(parameters[name], "ds_optim_param")]
            for parameter in marked:
                parameter.ds_optim_param = True
            try:
                original(engine)
            finally:
                for parameter in marked:
                    del parameter.ds_optim_param

        self._replace(DeepSpeedEngine, "_broadcast_model", broadcast)

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)


#: The guard of this process.
GUARD = Guard()
