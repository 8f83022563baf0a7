"""What is replaced in DiffSynth-Studio."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .._frozen import GUARD
from .._packs import is_reference
from . import _devices, _redirect
from ._file import PackFile
from ._known import IncompatibleError, check

_undo: list[tuple[Any, str, Any]] = []


def installed() -> bool:
    """True between :func:`install` and :func:`uninstall`."""
    return bool(_undo)


def install(
    packs: Iterable[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]] = (), *, check_hash: bool = False
) -> None:
    """Makes DiffSynth-Studio load from packs, in this process. Twice is once.

    Args:
        packs: Packs to use for the checkpoint files that they were made from, recognised by base name and
            size; they go before those of ``WPACK_PATH`` and of ``wpack register``. A mapping of
            ``model_id`` to pack lets a pack also stand for files that are not on disk.
        check_hash: Compare the files' SHA-256 with the recorded one, too; reads the files.

    Raises:
        IncompatibleError: a function that would be replaced is not as it is known.
        RegistryError: there is no such pack.
    """
    if isinstance(packs, Mapping):
        for model_id, pack in packs.items():
            _redirect.REGISTRY.add(pack, model_id)
    else:
        for pack in packs:
            _redirect.REGISTRY.add(pack)
    _redirect.REGISTRY.check_hash |= check_hash
    if installed():
        return
    try:
        from diffsynth.core.loader import config, file
        from diffsynth.core.vram import disk_map
    except ModuleNotFoundError as error:
        raise IncompatibleError(
            f"diffsynth cannot be imported: {error}", hint="pip install diffsynth==2.1.12 in this environment"
        ) from error
    loader = disk_map.SafetensorsCompatibleBinaryLoader
    for function in (
        file.load_keys_dict,
        file.load_keys_dict_from_safetensors,
        file.load_state_dict_from_bin,
        file.load_state_dict_from_safetensors,
        file.hash_model_file,
        loader.__init__,
        disk_map.DiskMap.__init__,
        disk_map.DiskMap.flush_files,
        disk_map.DiskMap.__getitem__,
        config.ModelConfig.download_if_necessary,
        config.ModelConfig.reset_local_model_path,
    ):
        check(function)
    try:
        _replace(file, "load_keys_dict", _load_keys_dict)
        _replace(file, "load_state_dict_from_bin", _load_state_dict_from_bin)
        _replace(file, "safe_open", _safe_open)
        _replace(disk_map, "safe_open", _safe_open)
        _replace(disk_map, "SafetensorsCompatibleBinaryLoader", _binary_loader)
        _replace(disk_map.DiskMap, "__getitem__", _getitem)
        _replace(config.ModelConfig, "download_if_necessary", _redirect.download)
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


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    _undo.append((owner, name, original))
    setattr(owner, name, wrap(original))


def _load_keys_dict(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_keys_dict(file_path: Any) -> Any:
        return PackFile(file_path).shapes() if is_reference(file_path) else original(file_path)

    return load_keys_dict


def _load_state_dict_from_bin(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_state_dict_from_bin(file_path: Any, torch_dtype: Any = None, device: Any = "cpu") -> Any:
        if not is_reference(file_path):
            return original(file_path, torch_dtype=torch_dtype, device=_devices.own(device))
        opened = PackFile(file_path, device)
        return {name: opened.get_tensor_as(name, torch_dtype) for name in opened.keys()}

    return load_state_dict_from_bin


def _safe_open(original: Callable[..., Any]) -> Callable[..., Any]:
    def safe_open(path: Any, framework: str = "pt", device: Any = "cpu", **options: Any) -> Any:
        if is_reference(path):
            return PackFile(path, device)
        return original(path, framework=framework, device=str(_devices.own(device)), **options)

    return safe_open


def _binary_loader(original: Callable[..., Any]) -> Callable[..., Any]:
    def open_binary(path: Any, device: Any) -> Any:
        return PackFile(path, device) if is_reference(path) else original(path, device=_devices.own(device))

    return open_binary


def _getitem(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def getitem(self: Any, name: str) -> Any:
        source = name if self.rename_dict is None else self.rename_dict[name]
        opened = self.files[self.name_map[source]]
        if not isinstance(opened, PackFile):
            return original(self, name)
        return opened.get_tensor_as(source, self.torch_dtype)

    return getitem


def _wrap_usp() -> None:
    try:
        from diffsynth.utils import xfuser
        from diffsynth.utils.xfuser import xdit_context_parallel
    except ImportError:
        # Without xfuser there is no USP.
        return
    check(xdit_context_parallel.initialize_usp)
    _replace(xdit_context_parallel, "initialize_usp", _devices.usp)
    _replace(xfuser, "initialize_usp", lambda _original: xdit_context_parallel.initialize_usp)


def _wrap_zero3() -> None:
    try:
        from transformers.integrations import deepspeed
    except ImportError:
        return
    if hasattr(deepspeed, "_load_state_dict_into_zero3_model"):
        from ..deepspeed import zero3_loader

        _replace(deepspeed, "_load_state_dict_into_zero3_model", zero3_loader)
