"""Which rank a process is."""

import subprocess
import sys

import pytest

from wpack import errors
from wpack._rank import check, find


def test_the_environment():
    assert find({"RANK": "3", "WORLD_SIZE": "4"}) == (3, 4)
    assert find({}) is None
    assert find({"LOCAL_RANK": "1"}) is None


@pytest.mark.parametrize(
    "environ",
    [{"RANK": "0"}, {"RANK": "x", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "-1", "WORLD_SIZE": "2"}],
)
def test_what_makes_no_rank(environ):
    with pytest.raises(errors.RankError):
        find(environ)


def test_a_rank_is_one_of_its_world():
    assert check(1, 2) == (1, 2)
    with pytest.raises(errors.RankError, match="rank 2"):
        check(2, 2)


def test_torch_distributed_comes_first(tmp_path):
    pytest.importorskip("torch")
    code = f"""
import torch.distributed as dist
from wpack._rank import find
dist.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)
assert find({{"RANK": "5", "WORLD_SIZE": "8"}}) == (0, 1)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
