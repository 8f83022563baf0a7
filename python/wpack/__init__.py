"""wpack: a rank's weights as tensors, without a copy, on the rank's own device.

>>> pack = wpack.open("model.wpack")        # header and index only
>>> shard = pack.shard()                    # this rank, from torch.distributed or RANK
>>> tensors = shard.state_dict()            # views of the file; nothing is read yet
>>> shard.load_into(model)                  # a model on the meta device becomes real
>>> tensors = shard.state_dict("cuda")      # this rank's own device
"""

from . import errors
from ._command import convert, inspect, plan, verify
from ._from_model import plan_from_model
from ._pack import Explanation, Pack, RankShard, Slice, VerifyReport, open
from ._stage import Stats
from ._wpack import View, __version__
from .errors import WpackError

__all__ = [
    "Explanation",
    "Pack",
    "RankShard",
    "Slice",
    "Stats",
    "VerifyReport",
    "View",
    "WpackError",
    "__version__",
    "convert",
    "errors",
    "inspect",
    "open",
    "plan",
    "plan_from_model",
    "verify",
]
