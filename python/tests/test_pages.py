"""Which memory is a pack's, on file systems whose kernel list and stat disagree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import save_file  # noqa: E402

import wpack  # noqa: E402
from wpack.integrations import _pages  # noqa: E402


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    save_file({"w": torch.arange(8192.0)}, tmp_path / "w.safetensors")
    wpack.convert(tmp_path / "w.safetensors", tmp_path / "w.wpack", progress=False)
    return tmp_path / "w.wpack"


def _origin(pack: Path) -> object:
    tensor = wpack.open(pack).shard(0, 1).state_dict()["w"]
    return tensor, _pages.MappedPacks().origin(tensor)


def test_other_device_and_inode_numbers(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As overlayfs and btrfs have it: the list names another device and inode than stat."""
    real = _pages._mappings

    def shifted() -> object:
        return [(a, b, c, ("00:" + d.replace(":", ""), str(int(i) + 7)), p) for a, b, c, (d, i), p in real()]

    monkeypatch.setattr(_pages, "_mappings", shifted)
    _, origin = _origin(pack)
    assert origin is not None and origin[0] == wpack.open(pack).digest  # type: ignore[index]


def test_a_copy_under_the_same_name_has_none(pack: Path) -> None:
    tensor = wpack.open(pack).shard(0, 1).state_dict()["w"]
    shutil.copy(pack, pack.with_suffix(".new"))
    os.replace(pack.with_suffix(".new"), pack)
    assert _pages.MappedPacks().origin(tensor) is None
    assert _origin(pack)[1] is not None  # type: ignore[index]


OVERLAY = """
import json, sys, torch, wpack
from wpack.integrations._pages import MappedPacks, unwritten
path = sys.argv[1]
tensor = wpack.open(path).shard(0, 1).state_dict()["w"]
origin = MappedPacks().origin(tensor)
print(json.dumps([origin and origin[0], wpack.open(path).digest, unwritten(tensor)]))
"""


def test_overlayfs(pack: Path, tmp_path: Path) -> None:
    lower, upper, work, merged = (tmp_path / name for name in ("lower", "upper", "work", "merged"))
    for folder in (lower, upper, work, merged):
        folder.mkdir()
    shutil.copy(pack, lower / "w.wpack")
    command = (
        f"mount -t overlay overlay -o lowerdir={lower},upperdir={upper},workdir={work} {merged} || exit 77; "
        f'exec "$0" -c "$1" {merged}/w.wpack'
    )
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        done = subprocess.run([*unshare, "sh", "-c", command, sys.executable, OVERLAY], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no unshare")
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"overlayfs cannot be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    found, digest, clean = json.loads(done.stdout)
    assert found == digest and clean
