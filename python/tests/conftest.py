"""Checkpoints, packs and processes for the tests."""

import json
import subprocess
import sys
import textwrap

import pytest

import wpack


@pytest.fixture
def run():
    """Runs Python code in a process of its own and returns the JSON it prints last."""

    def start(code, *args, timeout=120, check=True, env=None):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=env,
        )
        if check:
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout.splitlines()[-1])
        return done

    return start


@pytest.fixture
def convert(tmp_path):
    """Writes a state dict and packs it; returns the path of the pack."""
    torch = pytest.importorskip("torch")
    number = iter(range(1000))

    def make(state, layout="replicate", ranks=None, **options):
        from safetensors.torch import save_file

        i = next(number)
        if isinstance(state, dict):
            source = tmp_path / f"source{i}.safetensors"
            save_file({name: tensor.contiguous() for name, tensor in state.items()}, source)
        else:
            source = state
        out = tmp_path / f"{layout}{ranks or ''}.{i}.wpack"
        wpack.convert(source, out, layout=layout, ranks=ranks, progress=False, **options)
        return out

    make.torch = torch
    return make
