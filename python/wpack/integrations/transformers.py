"""transformers: models from a pack that carries their configuration."""

from __future__ import annotations

import json
import os
from typing import Any

from .. import WpackError
from ._packs import open_reference


class MissingConfigError(WpackError):
    """The pack does not carry the file that says which class the model is."""


def from_pack(
    pack: str | os.PathLike[str],
    *,
    model_class: Any = None,
    device: str | None = None,
    **options: Any,
) -> Any:
    """A model of its official class, its weights mapped from a pack.

    The folder of the model was converted with its ``config.json``, which says the class. Weights go through
    transformers' own loading (renames, ties, buffers that no checkpoint holds), from the mapping.

    Args:
        pack: ``x.wpack`` or ``x.wpack#component``.
        model_class: The class; the configuration's first architecture if not given.
        device: Where the model goes after loading; left on the mapping if not given.
        **options: Passed on to ``from_pretrained``.

    Raises:
        MissingConfigError: the pack carries no ``config.json`` for the component.
    """
    import transformers

    opened, component = open_reference(os.fspath(pack))
    text = opened.file("config.json", component) or opened.file("config.json")
    if text is None:
        raise MissingConfigError(
            f"{opened.path} carries no config.json for `{component}`",
            hint="convert the model's folder instead of its weight files",
        )
    values = json.loads(text)
    if model_class is None:
        model_class = getattr(transformers, (values.get("architectures") or [""])[0], None)
        if model_class is None:
            raise MissingConfigError(
                f"config.json names the architectures {values.get('architectures')}, none of which transformers has",
                hint="pass model_class=",
            )
    config = model_class.config_class.from_dict(values)
    shard = opened.shard(rank=0, world_size=1, layout="replicate", component=component)
    state = {source: shard.get_tensor(name) for source, name in opened.source_names(component)}
    options.setdefault("dtype", "auto" if values.get("dtype") is None and values.get("torch_dtype") is None else None)
    if options["dtype"] in (None, "auto"):
        options["dtype"] = _stored_dtype(state)
    model = model_class.from_pretrained(None, config=config, state_dict=state, **options)
    generation = opened.file("generation_config.json", component) or opened.file("generation_config.json")
    if generation is not None and hasattr(model, "generation_config"):
        model.generation_config = transformers.GenerationConfig.from_dict(json.loads(generation))
    if device is None:
        return model
    from .._device import resolve

    return model.to(resolve(device))


def _stored_dtype(state: dict[str, Any]) -> Any:
    """The element type of most floating bytes: what keeps the most of the mapping uncopied."""
    counts: dict[Any, int] = {}
    for tensor in state.values():
        if tensor.dtype.is_floating_point:
            counts[tensor.dtype] = counts.get(tensor.dtype, 0) + tensor.numel()
    return max(counts, key=lambda dtype: counts[dtype]) if counts else None
