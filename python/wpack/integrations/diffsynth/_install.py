"""What is replaced in DiffSynth-Studio, and the checks that it is what is known."""

from __future__ import annotations

import fnmatch
import functools
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ... import WpackError
from ..._device import resolve
from .._frozen import GUARD
from .._packs import Holding, Registry, is_reference
from ._file import PackFile

#: Versions that the replaced functions were read in and run with.
KNOWN_VERSIONS = ("2.0.0", "2.1.12")

_DISK_MAP_GETITEM = ("self", "name")
_undo: list[tuple[Any, str, Any]] = []
_registry = Registry()


class IncompatibleError(WpackError):
    """The installed DiffSynth-Studio is not one whose functions this adapter knows."""


def installed() -> bool:
    """True between :func:`install` and :func:`uninstall`."""
    return bool(_undo)


def install(packs: Iterable[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]] = ()) -> None:
    """Makes DiffSynth-Studio load from packs, in this process. Twice is once.

    Args:
        packs: Packs to use for the checkpoint files that they were made from, recognised by base name and
            size (beside those of ``WPACK_PATH``). A mapping of ``model_id`` to pack lets a pack also stand
            for files that are not on disk.

    Raises:
        IncompatibleError: a function that would be replaced is not as it is known.
    """
    if isinstance(packs, Mapping):
        for model_id, pack in packs.items():
            _registry.add(pack, model_id)
    else:
        for pack in packs:
            _registry.add(pack)
    if installed():
        return
    from diffsynth.core.loader import config, file
    from diffsynth.core.vram import disk_map

    _check(file.load_keys_dict, ("file_path",))
    _check(file.load_state_dict_from_bin, ("file_path", "torch_dtype", "device"))
    _check(file.load_state_dict_from_safetensors, ("file_path", "torch_dtype", "device"))
    _check(disk_map.SafetensorsCompatibleBinaryLoader.__init__, ("self", "path", "device"))
    _check(disk_map.DiskMap.__getitem__, _DISK_MAP_GETITEM)
    _check(config.ModelConfig.download_if_necessary, ("self",), more=True)
    try:
        _replace(file, "load_keys_dict", _load_keys_dict(file.load_keys_dict))
        _replace(file, "load_state_dict_from_bin", _load_state_dict_from_bin(file.load_state_dict_from_bin))
        _replace(file, "safe_open", _safe_open(file.safe_open))
        _replace(disk_map, "safe_open", _safe_open(disk_map.safe_open))
        loader = disk_map.SafetensorsCompatibleBinaryLoader
        _replace(disk_map, "SafetensorsCompatibleBinaryLoader", _binary_loader(loader))
        _replace(disk_map.DiskMap, "__getitem__", _getitem(disk_map.DiskMap.__getitem__))
        download = config.ModelConfig.download_if_necessary
        _replace(config.ModelConfig, "download_if_necessary", _download(download))
        _wrap_usp()
        _wrap_zero3()
    except BaseException:
        uninstall()
        raise
    GUARD.install()


def uninstall() -> None:
    """Puts DiffSynth's own functions back; models that are loaded stay as they are."""
    while _undo:
        owner, name, original = _undo.pop()
        setattr(owner, name, original)
    GUARD.uninstall()


def _check(function: Callable[..., Any], parameters: Sequence[str], more: bool = False) -> None:
    found = tuple(inspect.signature(function).parameters)
    if found == tuple(parameters) or (more and found[: len(parameters)] == tuple(parameters)):
        return
    try:
        version = importlib.metadata.version("diffsynth")
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    raise IncompatibleError(
        f"diffsynth {version}: {function.__qualname__} takes {found}, expected {tuple(parameters)}",
        hint=f"this adapter knows diffsynth {' and '.join(KNOWN_VERSIONS)}; install one of them",
    )


def _replace(owner: Any, name: str, value: Any) -> None:
    _undo.append((owner, name, getattr(owner, name)))
    setattr(owner, name, value)


def _load_keys_dict(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_keys_dict(file_path: Any) -> Any:
        return PackFile(file_path).shapes() if is_reference(file_path) else original(file_path)

    return load_keys_dict


def _load_state_dict_from_bin(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_state_dict_from_bin(file_path: Any, torch_dtype: Any = None, device: Any = "cpu") -> Any:
        if not is_reference(file_path):
            return original(file_path, torch_dtype=torch_dtype, device=resolve(device))
        opened = PackFile(file_path, device)
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}
        if torch_dtype is not None:
            tensors = {name: tensor.to(torch_dtype) for name, tensor in tensors.items()}
        return tensors

    return load_state_dict_from_bin


def _safe_open(original: Callable[..., Any]) -> Callable[..., Any]:
    def safe_open(path: Any, framework: str = "pt", device: Any = "cpu", **options: Any) -> Any:
        return original(path, framework=framework, device=str(resolve(device)), **options)

    return safe_open


def _binary_loader(original: Callable[..., Any]) -> Callable[..., Any]:
    def open_binary(path: Any, device: Any) -> Any:
        return PackFile(path, device) if is_reference(path) else original(path, device=resolve(device))

    return open_binary


def _getitem(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def getitem(self: Any, name: str) -> Any:
        source = name if self.rename_dict is None else self.rename_dict[name]
        opened = self.files[self.name_map[source]]
        if not isinstance(opened, PackFile):
            return original(self, name)
        tensor = opened.get_tensor(source)
        return tensor if self.torch_dtype is None else tensor.to(self.torch_dtype)

    return getitem


def _download(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def download_if_necessary(self: Any, *args: Any, **options: Any) -> Any:
        if self.path is None:
            found = _of_model(self)
            if found is not None:
                self.path = _use(found, f"{self.model_id}:{self.origin_file_pattern}")
                return None
        result = original(self, *args, **options)
        files = [self.path] if isinstance(self.path, str) else list(self.path or ())
        if files and not any(is_reference(file) for file in files):
            found = _registry.find(files)
            if found is not None:
                self.path = _use(found, ", ".join(map(os.path.basename, files)))
        return result

    return download_if_necessary


def _of_model(config: Any) -> Holding | None:
    """A pack registered for the configuration's model, whose files its pattern names."""
    if config.model_id is None:
        return None
    patterns = config.origin_file_pattern or "*"
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    names = [os.path.basename(pattern) or "*" for pattern in patterns]
    return _registry.find_model(
        config.model_id, None, lambda name: any(fnmatch.fnmatchcase(name, pattern) for pattern in names)
    )


def _use(found: Holding, asked: str) -> str:
    if os.environ.get("RANK", "0") == "0":
        sys.stderr.write(f"wpack: {asked} from {found.reference}\n")
    return found.reference


def _wrap_usp() -> None:
    """``initialize_usp`` makes the global rank the device index, which is wrong beyond one node."""
    try:
        from diffsynth.utils import xfuser
        from diffsynth.utils.xfuser import xdit_context_parallel as usp
    except ImportError:
        return
    original = usp.initialize_usp
    _check(original, ("device_type",))

    @functools.wraps(original)
    def initialize_usp(device_type: Any) -> Any:
        import torch

        local = os.environ.get("LOCAL_RANK")
        module = getattr(torch, str(torch.device(device_type).type), None)
        if local is None or module is None or not hasattr(module, "set_device"):
            return original(device_type)
        own = module.set_device
        module.set_device = lambda _rank: own(int(local))
        try:
            return original(device_type)
        finally:
            module.set_device = own

    _replace(usp, "initialize_usp", initialize_usp)
    if hasattr(xfuser, "initialize_usp"):
        _replace(xfuser, "initialize_usp", initialize_usp)


def _wrap_zero3() -> None:
    from ..deepspeed import zero3_loader

    try:
        from transformers.integrations import deepspeed
    except ImportError:
        return
    original = deepspeed._load_state_dict_into_zero3_model
    _replace(deepspeed, "_load_state_dict_into_zero3_model", zero3_loader(original))
