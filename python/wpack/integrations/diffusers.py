"""diffusers: models and whole pipelines from a pack that carries their configuration."""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from typing import Any

from .. import Pack, WpackError
from .. import open as open_pack
from . import _refuse
from ._config import MissingConfigError, config, opened, save_files

__all__ = ["LoadedKeysError", "MissingConfigError", "from_pack", "pipeline_from_pack", "save_files"]


class LoadedKeysError(WpackError):
    """The pack's tensors are not those of the class that the configuration names."""


def from_pack(
    pack: Pack | str | os.PathLike[str],
    *,
    component: str | None = None,
    model_class: Any = None,
    torch_dtype: Any = None,
    device: str | None = None,
) -> Any:
    """A diffusers model of its official class, its weights mapped from a pack.

    The model is built as ``from_pretrained`` builds it: parameters on the meta device, buffers real, names of
    old checkpoints translated.

    Args:
        pack: The pack, or its path (``x.wpack`` or ``x.wpack#component``).
        component: Component of the pack; not needed where there is only one.
        model_class: The class; what the configuration's ``_class_name`` says if not given.
        torch_dtype: Cast floating tensors, as ``from_pretrained`` does; modules that the class keeps in fp32
            are. The pack's own types if not given, so that nothing is copied.
        device: Where the model goes after loading; left on the mapping if not given.

    Raises:
        MissingConfigError: the pack carries no ``config.json`` for the component, or it names no class.
        QuantizedModelError: the configuration asks for quantised weights.
        LoadedKeysError: a parameter has no tensor, or a tensor no place.
    """
    import diffusers

    source, name = opened(pack, component)
    values = config(source, name)
    _refuse.quantized_config(values, f"config.json of `{name}`")
    if model_class is None:
        model_class = getattr(diffusers, str(values.get("_class_name")), None)
        if model_class is None:
            raise MissingConfigError(
                f"{source.path}: config.json of `{name}` names the class {values.get('_class_name')!r}, "
                f"which diffusers {diffusers.__version__} does not have",
                hint="pass model_class=, or use wpack.integrations.transformers for a text encoder",
            )
    shard = source.shard(rank=0, world_size=1, layout="replicate", component=name)
    views = shard.state_dict()
    state = OrderedDict((original, views[ours]) for original, ours in source.source_names(name))
    model = _empty(model_class, values, torch_dtype)
    model._fix_state_dict_keys_on_load(state)
    if torch_dtype is not None:
        keep = model_class._keep_in_fp32_modules or []
        state = _cast(state, torch_dtype, [keep] if isinstance(keep, str) else keep)
    from .._load import load_into

    try:
        load_into(model, state, True, True)
    except RuntimeError as error:
        raise LoadedKeysError(
            f"{source.path}: `{name}` does not fit {model_class.__name__}: {error}",
            hint="convert the model's folder as it is, without --include, --exclude or --rename",
        ) from error
    if torch_dtype is not None and not model_class._keep_in_fp32_modules:
        model = model.to(torch_dtype)
    model.eval()
    if device is None:
        return model
    from .._device import resolve

    return model.to(resolve(device))


def pipeline_from_pack(
    pack: Pack | str | os.PathLike[str], *, torch_dtype: Any = None, device: str | None = None, **components: Any
) -> Any:
    """A whole pipeline: the folder with ``model_index.json`` was converted, each of its models a component.

    Args:
        pack: The pack or its path.
        torch_dtype: As for :func:`from_pack`; also given to transformers' models.
        device: Where the pipeline goes after loading; left on the mapping if not given.
        **components: Passed on to ``from_pretrained``: parts to take instead of the pack's, such as
            ``safety_checker=None``.

    Raises:
        MissingConfigError: the pack carries no ``model_index.json``, or a model's ``config.json`` is missing.
    """
    import json

    import diffusers

    from . import transformers as hf

    source = pack if isinstance(pack, Pack) else open_pack(pack)
    data = source.file("model_index.json")
    if data is None:
        raise MissingConfigError(
            f"{source.path} carries no model_index.json",
            hint="convert the folder of the whole pipeline, or take one model with from_pack",
        )
    index = json.loads(data)
    # The class itself: the general one does not know which optional parts it takes.
    pipeline_class = getattr(diffusers, str(index.get("_class_name")), diffusers.DiffusionPipeline)
    for part, entry in index.items():
        if part not in source.components or part in components:
            continue
        if entry[0] == "transformers":
            options = {} if torch_dtype is None else {"dtype": torch_dtype}
            components[part] = hf.from_pack(source, component=part, **options)
        else:
            components[part] = from_pack(source, component=part, torch_dtype=torch_dtype)
    with tempfile.TemporaryDirectory(prefix="wpack-") as folder:
        save_files(source, folder)
        pipeline = pipeline_class.from_pretrained(folder, local_files_only=True, **components)
    if device is None:
        return pipeline
    from .._device import resolve

    return pipeline.to(resolve(device))


def _empty(model_class: Any, values: dict[str, Any], dtype: Any) -> Any:
    import torch
    from accelerate import init_empty_weights
    from diffusers.models.modeling_utils import no_init_weights

    before = torch.get_default_dtype()
    # As from_pretrained does: what the model computes for itself is of the type asked for.
    if dtype is not None and dtype.is_floating_point and dtype.itemsize > 1:
        torch.set_default_dtype(dtype)
    try:
        with no_init_weights(), init_empty_weights(include_buffers=False):
            return model_class.from_config(values)
    finally:
        torch.set_default_dtype(before)


def _cast(state: OrderedDict[str, Any], dtype: Any, keep: list[str]) -> OrderedDict[str, Any]:
    import torch

    out: OrderedDict[str, Any] = OrderedDict()
    for name, tensor in state.items():
        kept = any(module in name.split(".") for module in keep)
        floating = torch.is_floating_point(tensor)
        out[name] = tensor.to(torch.float32 if kept else dtype) if floating else tensor
    return out
