"""The functions of DiffSynth-Studio that are replaced or relied on, as they were read."""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from ... import WpackError

#: Versions whose sources were read; those in between have the same functions or are refused by name.
READ_VERSIONS = ("2.0.0", "2.0.4", "2.0.10", "2.0.18", "2.1.2", "2.1.3", "2.1.7", "2.1.12")

#: Fingerprint of each function, and the versions that have it so.
KNOWN: Mapping[str, Mapping[str, str]] = {
    "load_keys_dict": {"c38d81b564315386": "2.0.0 to 2.1.12"},
    "load_state_dict_from_bin": {"c36b97bf089560b2": "2.0.0 to 2.1.12"},
    "load_state_dict_from_safetensors": {"ab784363df07c1e7": "2.0.0 to 2.1.12"},
    "load_keys_dict_from_safetensors": {"a9fb5ca00e8d8be0": "2.0.0 to 2.1.12"},
    "hash_model_file": {"cce073248baf4c4e": "2.0.0 to 2.1.12"},
    "SafetensorsCompatibleBinaryLoader.__init__": {"82cb9ac052ba31a1": "2.0.0 to 2.1.12"},
    "DiskMap.__init__": {"e29dd8c59725a554": "2.0.0 to 2.1.12"},
    "DiskMap.flush_files": {"adae176f38214bb0": "2.0.0 to 2.1.12"},
    "DiskMap.__getitem__": {"67ae1f90382cf75d": "2.0.0 to 2.1.2", "4053d72efbdebd25": "2.1.3 to 2.1.12"},
    "ModelConfig.download_if_necessary": {
        "f13d26ab09812e81": "2.0.0 to 2.0.4",
        "beff824cc942cf63": "2.0.10 to 2.0.18",
        "4c71ff52be1e1afc": "2.1.2 to 2.1.12",
    },
    "ModelConfig.reset_local_model_path": {"097e527447242dd2": "2.0.0 to 2.1.12"},
    "initialize_usp": {"4998004c5ce490b2": "2.0.0 to 2.1.12"},
}


class IncompatibleError(WpackError):
    """The installed DiffSynth-Studio is not one whose functions this adapter knows."""


def version() -> str:
    """The installed version."""
    try:
        return importlib.metadata.version("diffsynth")
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def check(function: Callable[..., Any]) -> None:
    """Compares a function with what is known of it.

    Raises:
        IncompatibleError: it is another one, or its source cannot be read.
    """
    name = function.__qualname__
    known = KNOWN.get(name, {})
    try:
        found = fingerprint(function)
    except (OSError, TypeError) as error:
        raise IncompatibleError(
            f"diffsynth {version()}: the source of {name} cannot be read, so that it cannot be compared: {error}",
            hint=_HINT,
        ) from error
    if found not in known:
        expected = ", ".join(f"{value} (as in diffsynth {versions})" for value, versions in known.items())
        raise IncompatibleError(
            f"diffsynth {version()}: {name} has fingerprint {found}, expected {expected or 'no such function'}",
            hint=_HINT,
        )


_HINT = f"install one of the versions that this adapter has read: diffsynth {', '.join(READ_VERSIONS)}"


def fingerprint(function: Callable[..., Any]) -> str:
    """Of a function's source, blank lines and indentation of the whole apart."""
    lines = [line.rstrip() for line in inspect.getsource(function).splitlines()]
    source = textwrap.dedent("\n".join(line for line in lines if line)).strip()
    return hashlib.sha256(source.encode()).hexdigest()[:16]
