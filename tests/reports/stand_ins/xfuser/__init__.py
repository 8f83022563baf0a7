"""Stands for xfuser where there is no GPU: the functions that DiffSynth-Studio's USP calls, over gloo."""
