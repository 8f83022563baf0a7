"""diffusers: models from a pack that carries their configuration."""

from __future__ import annotations

import json
import os
from typing import Any

from ._packs import open_reference
from .transformers import MissingConfigError


def from_pack(pack: str | os.PathLike[str], *, model_class: Any = None, device: str | None = None) -> Any:
    """A diffusers model of its official class, its weights mapped from a pack.

    Args:
        pack: ``x.wpack`` or ``x.wpack#component``.
        model_class: The class; what the configuration's ``_class_name`` says if not given.
        device: Where the model goes after loading; left on the mapping if not given.

    Raises:
        MissingConfigError: the pack carries no ``config.json`` for the component, or it names no class.
    """
    import diffusers
    import torch

    opened, component = open_reference(os.fspath(pack))
    text = opened.file("config.json", component) or opened.file("config.json")
    if text is None:
        raise MissingConfigError(
            f"{opened.path} carries no config.json for `{component}`",
            hint="convert the model's folder instead of its weight files",
        )
    values = json.loads(text)
    if model_class is None:
        model_class = getattr(diffusers, str(values.get("_class_name")), None)
        if model_class is None:
            raise MissingConfigError(
                f"config.json names the class {values.get('_class_name')!r}, which diffusers does not have",
                hint="pass model_class=, or use wpack.integrations.transformers for a text encoder",
            )
    with torch.device("meta"):
        model = model_class.from_config(values)
    shard = opened.shard(rank=0, world_size=1, layout="replicate", component=component)
    shard.load_into(model)
    model.eval()
    if device is None:
        return model
    from .._device import resolve

    return model.to(resolve(device))
