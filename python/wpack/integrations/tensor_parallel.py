"""Tensor parallelism by ``parallelize_module``: DTensors of this rank's own slices from a pack.

The model was built on the meta device and went through ``torch.distributed.tensor.parallel.parallelize_module``,
and through ``fully_shard`` behind it if wanted. What a rank holds is read off each parameter's own placements.
"""

from .fsdp import UnsupportedPlacementError, load_into

__all__ = ["UnsupportedPlacementError", "load_into"]
