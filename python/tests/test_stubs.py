"""The stub of the native module agrees with it, and the package's own types hold."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("mypy")

import wpack

FOLDER = pathlib.Path(__file__).parents[1]


def test_the_stub_agrees_with_the_module():
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "wpack._wpack", "--allowlist", str(FOLDER / "stubtest-allowlist.txt")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_is_typed_strictly(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(FOLDER / "pyproject.toml"), "--cache-dir", str(tmp_path), "-p", "wpack"],
        capture_output=True, text=True, timeout=300, cwd=FOLDER,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_says_that_it_is_typed():
    assert (pathlib.Path(wpack.__file__).parent / "py.typed").exists()
    assert (pathlib.Path(wpack.__file__).parent / "_wpack.pyi").exists()


def test_everything_public_is_documented():
    undocumented = [name for name in wpack.__all__ if not (getattr(wpack, name).__doc__ or "").strip() and name != "__version__"]
    for kind in (wpack.Pack, wpack.RankShard, wpack.Slice, wpack.View):
        for name, member in vars(kind).items():
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                if not (member.__doc__ or "").strip() and name != "get_shape":
                    undocumented.append(f"{kind.__name__}.{name}")
    assert not undocumented
