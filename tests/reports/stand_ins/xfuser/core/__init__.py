"""Parts of xfuser that DiffSynth-Studio imports."""
