"""``ModelConfig`` takes a registered pack in the place of the files that it was made from."""

from __future__ import annotations

import functools
import glob
import os
import sys
from collections.abc import Callable
from typing import Any

from .._packs import Holding, Registry, is_reference

#: The packs of this process.
REGISTRY = Registry()

# Pipelines send requests for a few common files to this model, whatever model they were asked of, by file
# name alone: `Wan2.2_VAE.pth` becomes `Wan2.2_VAE.safetensors` of it.
_COMMON = "DiffSynth-Studio/Wan-Series-Converted-Safetensors"


def download(original: Callable[..., Any]) -> Callable[..., Any]:
    """``ModelConfig.download_if_necessary``, which nothing is downloaded by where a pack is at hand."""

    @functools.wraps(original)
    def download_if_necessary(self: Any, *args: Any, **options: Any) -> Any:
        asked = self.path is None
        found = _of_model(self) if asked else _of_files(self.path)
        if found is None:
            result = original(self, *args, **options)
            found = _of_files(self.path) if asked else None
            if found is None:
                return result
        self.path = _use(found, _asked(self))
        return None

    return download_if_necessary


def _of_files(path: Any) -> Holding | None:
    files = [path] if isinstance(path, (str, os.PathLike)) else list(path or ())
    if any(is_reference(file) for file in files):
        return None
    return REGISTRY.find([os.fspath(file) for file in files])


def _of_model(config: Any) -> Holding | None:
    """A pack made from the files on disk that the configuration names, else one registered for the model."""
    model, pattern = config.model_id, config.origin_file_pattern
    if model is None or not isinstance(pattern, str) or not os.path.basename(pattern):
        # A folder, such as a tokenizer's.
        return None
    base = os.environ.get("DIFFSYNTH_MODEL_BASE_PATH") or config.local_model_path or "./models"
    found = _of_files(sorted(glob.glob(os.path.join(base, model, pattern))))
    found = found or REGISTRY.find_model(model, pattern)
    if found is None and model == _COMMON:
        stem, suffix = os.path.splitext(pattern)
        if suffix == ".safetensors":
            found = REGISTRY.find_name((pattern, f"{stem}.pth"), f"{model}:{pattern}")
    return found


def _asked(config: Any) -> str:
    if config.path is None:
        return f"{config.model_id}:{config.origin_file_pattern}"
    files = [config.path] if isinstance(config.path, (str, os.PathLike)) else config.path
    return ", ".join(os.path.basename(os.fspath(file)) for file in files)


def _use(found: Holding, asked: str) -> str:
    if os.environ.get("RANK", "0") == "0":
        sys.stderr.write(f"wpack: {asked} from {found.reference}\n")
    return found.reference
