"""DiffSynth-Studio loads from packs: call :func:`install` once, or start the script by
``python -m wpack.integrations.diffsynth train.py ...``.

Afterwards ``x.wpack`` or ``x.wpack#component`` works wherever a checkpoint's path does, files that a
registered pack was made from are read from the pack, a bare ``"cuda"`` means this process's device, and
frozen weights stay shared through ``accelerator.prepare``.
"""

from ._install import install, installed, uninstall
from ._known import READ_VERSIONS, IncompatibleError

__all__ = ["READ_VERSIONS", "IncompatibleError", "install", "installed", "uninstall"]
