"""Packs of the binary under test, read by the reader that was written from the format's page alone."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from planned import Plan
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "reader"))
import wpack_reader


@dataclass
class Shard:
    """One slice of a rank."""

    name: str
    dtype: str
    shape: tuple
    data: bytes
    fill: list  # of (first element, elements, value)


def convert(stem, values, *args, plan=None):
    """Makes a checkpoint and a pack of it, and reads the pack. With a plan file, only plans."""
    if plan is not None:
        return Plan(stem, values, plan)
    checkpoint = f"{stem}.safetensors"
    save_file(values, checkpoint)
    read = converted(f"{stem}.wpack", checkpoint, *args)
    os.remove(checkpoint)
    return read


def converted(pack, *args):
    """Reads the pack that `wpack convert` makes, and removes it."""
    command = [os.environ["WPACK_BIN"], "convert", *map(str, args), "-o", str(pack), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    read = wpack_reader.Pack(Path(pack).read_bytes())
    os.remove(pack)
    return read


def components(pack):
    """The names of a pack's components, in order."""
    return [component["name"] for component in pack.description["components"]]


def shard(pack, rank, component=0):
    """The slices of a rank by name; master copies and flat groups by `("master", first name)` and the
    name of the first tensor they hold."""
    out = {}
    for entry, data in pack.shard(rank):
        if entry["component"] != component:
            continue
        named = [part for part in entry["parts"] if isinstance(part, list)]
        name = pack.tensors[entry["component"]][named[0][0]]["names"][0][0]
        fill, at = [], 0
        if entry["content"] == "flat":
            for part in entry["parts"]:
                count = part[2][0] if isinstance(part, list) else part["fill"]
                if isinstance(part, dict):
                    fill.append((at, count, bytes.fromhex(part["value"])))
                at += count
        key = name if entry["kind"] == "value" else ("master", name)
        assert key not in out, key
        out[key] = Shard(name, entry["dtype"], tuple(entry["shape"]), data, fill)
    return out
