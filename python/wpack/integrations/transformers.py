"""transformers: models from a pack that carries their configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import Pack
from . import _refuse
from ._config import MissingConfigError, config, opened, read_json, save_files

__all__ = ["MissingConfigError", "from_pack", "save_files"]


def from_pack(
    pack: Pack | str | os.PathLike[str],
    *,
    component: str | None = None,
    model_class: Any = None,
    device: str | None = None,
    **options: Any,
) -> Any:
    """A model of its official class, its weights mapped from a pack.

    The folder of the model was converted with its ``config.json``, which says the class. Weights go through
    transformers' own loading (renames, merges, ties, buffers that no checkpoint holds), from the mapping: what
    transformers takes as it is stays a view of the file.

    Under DeepSpeed ZeRO-3 (``HfDeepSpeedConfig`` is alive) each rank copies its own part of each parameter.

    Args:
        pack: The pack, or its path (``x.wpack`` or ``x.wpack#component``).
        component: Component of the pack; not needed where there is only one.
        model_class: The class; the configuration's first architecture if not given.
        device: Where the model goes after loading; left on the mapping if not given.
        **options: Passed on to ``from_pretrained``. ``dtype`` is the pack's own if not given, so that
            nothing is cast.

    Raises:
        MissingConfigError: the pack carries no ``config.json`` for the component, or it names no class.
        QuantizedModelError: the configuration or the options ask for quantised weights.
    """
    import transformers

    source, name = opened(pack, component)
    values = config(source, name)
    _refuse.quantized_config(values, f"config.json of `{name}`")
    _refuse.quantized_config(options, "the call")
    if model_class is None:
        model_class = next(
            (found for one in values.get("architectures") or [] if (found := getattr(transformers, one, None))), None
        )
        if model_class is None:
            raise MissingConfigError(
                f"{source.path}: config.json of `{name}` names the architectures {values.get('architectures')}, "
                f"none of which transformers {transformers.__version__} has",
                hint="pass model_class=",
            )
    settings = options.pop("config", None) or model_class.config_class.from_dict(values)
    shard = source.shard(rank=0, world_size=1, layout="replicate", component=name)
    views = shard.state_dict()
    # transformers renames from the names of the checkpoint.
    state = {original: views[ours] for original, ours in source.source_names(name)}
    dtype = options.pop("dtype", options.pop("torch_dtype", None))
    options["dtype"] = _stored_dtype(state) if dtype in (None, "auto") else dtype
    with _own_partitions():
        model = model_class.from_pretrained(None, config=settings, state_dict=state, **options)
    generation = read_json(source, name, "generation_config.json")
    if generation is not None and model.can_generate():
        model.generation_config = transformers.GenerationConfig.from_dict(generation)
    if device is None:
        return model
    from .._device import resolve

    return model.to(resolve(device))


@contextmanager
def _own_partitions() -> Iterator[None]:
    """Under ZeRO-3, transformers' loading gathers each layer and lets rank 0 fill it; here each rank fills
    its own partition."""
    from transformers import modeling_utils
    from transformers.integrations import is_deepspeed_zero3_enabled

    name = "_load_state_dict_into_zero3_model"
    original = getattr(modeling_utils, name, None)
    if original is None or not is_deepspeed_zero3_enabled():
        yield
        return
    from .deepspeed import zero3_loader

    setattr(modeling_utils, name, zero3_loader(original))
    try:
        yield
    finally:
        setattr(modeling_utils, name, original)


def _stored_dtype(state: dict[str, Any]) -> Any:
    """The element type of most floating elements: what leaves the most of the mapping uncopied."""
    counts: dict[Any, int] = {}
    for tensor in state.values():
        if tensor.dtype.is_floating_point:
            counts[tensor.dtype] = counts.get(tensor.dtype, 0) + tensor.numel()
    return max(counts, key=lambda dtype: counts[dtype]) if counts else "auto"
