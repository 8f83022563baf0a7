"""Stands for yunchang where there is no GPU: names that DiffSynth-Studio imports."""
