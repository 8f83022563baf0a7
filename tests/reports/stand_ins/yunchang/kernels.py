"""Kinds of kernels."""

from enum import Enum


class AttnType(Enum):
    """Named by DiffSynth-Studio when it calls attention."""

    FA = "fa"
    NPU = "npu"
