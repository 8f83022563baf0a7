"""Plans of plan files, with the bytes gathered here: layouts whose facts no flag can say."""

import json
import os
import subprocess
from pathlib import Path

import torch

import proof

TYPES = {name: dtype for dtype, name in proof.DTYPES.items()}


class Plan:
    """The slices of every rank, shown as the reader of packs shows them."""

    def __init__(self, stem, values, text):
        inventory = [
            {"name": name, "dtype": proof.DTYPES[value.dtype], "shape": list(value.shape)}
            for name, value in values.items()
        ]
        Path(f"{stem}.json").write_text(json.dumps(inventory))
        Path(f"{stem}.toml").write_text(text)
        command = [os.environ["WPACK_SLICES"], f"{stem}.json", f"{stem}.toml"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
        self.ranks = json.loads(done.stdout)
        self.values = list(values.values())
        self.tensors = [[{"names": [[name, name]]} for name in values]]

    def shard(self, rank):
        """The slices of a rank, each with its bytes."""
        return [({**entry, "component": 0}, self.gather(entry)) for entry in self.ranks[rank]]

    def gather(self, entry):
        """A slice's bytes, from the whole tensors."""
        dtype, pieces, data = TYPES[entry["dtype"]], [], b""
        for part in entry["parts"]:
            if isinstance(part, dict):
                data += bytes.fromhex(part["value"])[: dtype.itemsize] * part["fill"]
                continue
            tensor, start, size = part
            value = self.values[tensor].detach()
            value = value.reshape(-1) if entry["content"] == "flat" else value
            for dim, (lo, count) in enumerate(zip(start, size)):
                value = value.narrow(dim, lo, count)
            # A master copy is the weight in another type.
            pieces.append(value.to(dtype))
            data += proof.raw(pieces[-1])
        return proof.raw(torch.cat(pieces, entry["dim"])) if entry["content"] == "boxes" else data
