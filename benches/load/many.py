"""One process's state dict of very many tensors, in processor time.

    many.py [--tensors 100000] [--rounds 5] [--folder FOLDER]

Tensors of 4 KB (bf16, 2 x 1024) in a safetensors file and in a replicated pack of it, both read into the cache
alike before each run. Each run is a process of its own that has imported everything, loaded a small file once and
collected its garbage; the order is random. The collector stays on, as in a program that does not think of it.
"""

import argparse
import gc
import json
import os
import random
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch

import measure


def make(folder, name, count):
    """Both forms of ``count`` tensors."""
    import wpack
    from safetensors.torch import save_file

    numbers = torch.randn(count, 2, 1024, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    state = {f"transformer_blocks.{i // 16}.attn.sub{i % 16}.to_k.weight": numbers[i].clone() for i in range(count)}
    save_file(state, f"{folder}/{name}.safetensors")
    wpack.convert(f"{folder}/{name}.safetensors", output=f"{folder}/{name}.wpack", layout="replicate", progress=False)


def load_wpack(path):
    import wpack

    return wpack.open(f"{path}.wpack").shard(rank=0, world_size=1).state_dict(progress=False)


def load_safetensors(path):
    from safetensors.torch import load_file

    return load_file(f"{path}.safetensors")


def load_pread(path):
    from safetensors.torch import load_file

    return load_file(f"{path}.safetensors", backend="pread")


LOADERS = {"wpack": load_wpack, "safetensors load_file": load_safetensors, "safetensors load_file pread": load_pread}


def measured(load, folder):
    """Wall and processor seconds of all threads, and the tensors, in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            load(f"{folder}/few")
            gc.collect()
            cpu, at = time.process_time(), time.monotonic()
            state = load(f"{folder}/many")
            facts = {"cpu": time.process_time() - cpu, "wall": time.monotonic() - at, "tensors": len(state)}
            os.write(write, json.dumps(facts).encode())
            os._exit(0)
        except BaseException as error:
            os.write(write, json.dumps({"error": f"{type(error).__name__}: {error}"[:1000]}).encode())
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    facts = json.loads(text) if text else {"error": f"the process ended with {status}"}
    if "error" in facts:
        raise SystemExit(facts["error"])
    return facts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where the files go; default: a temporary folder")
    args = parser.parse_args()
    found = {name: [] for name in LOADERS}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        make(folder, "few", 100)
        make(folder, "many", args.tensors)
        gc.collect()
        files = [f"{folder}/many.safetensors", f"{folder}/many.wpack"]
        order = list(LOADERS)
        for _ in range(args.rounds):
            random.shuffle(order)
            for name in order:
                measure.warm(files)
                there, total = measure.resident(files)
                if there < 0.99 * total:
                    raise SystemExit(f"not warm: {there} of {total} bytes were in the page cache")
                busy, at = measure.busy()[0], time.monotonic()
                facts = measured(LOADERS[name], folder)
                span = time.monotonic() - at
                if facts["tensors"] != args.tensors:
                    raise SystemExit(f"{name}: {facts['tensors']} tensors instead of {args.tensors}")
                facts["others"] = max(0.0, measure.busy()[0] - busy - facts["cpu"]) / span
                found[name].append(facts)
    print("| loader | CPU, s | wall, s | others' cores |\n|---|---|---|---|")
    for name, rows in found.items():
        cells = []
        for key in ("cpu", "wall", "others"):
            values = [row[key] for row in rows]
            cells.append(f"{measure.median(values):.3f} ({min(values):.3f}..{max(values):.3f})")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
