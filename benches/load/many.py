"""A dict of 100 000 tensors: processor time and wall time, each loader in a process of its own.

    many.py FOLDER [ROUNDS]

Makes 100 000 tensors of four elements in FOLDER, as safetensors and as a replicated pack, and loads them in turn. The
clock runs from the path to the dict; imports are over by then.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

COUNT = 100_000

LOAD = {
    "wpack": """
import wpack
def load(folder):
    return wpack.open(folder + "/many.wpack").shard(rank=0, world_size=1).state_dict(progress=False)
""",
    "safetensors load_file": """
from safetensors.torch import load_file
def load(folder):
    return load_file(folder + "/many.safetensors")
""",
}

MEASURE = """
import json, sys, time, torch
torch.set_num_threads(1)
wall, cpu = time.perf_counter(), time.process_time()
state = load(sys.argv[1])
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu, len(state)]))
"""


def main():
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7
    folder.mkdir(parents=True, exist_ok=True)
    import torch
    from safetensors.torch import save_file

    import wpack

    source = folder / "many.safetensors"
    names = (f"model.layers.{i // 100}.experts.{i % 100}.weight" for i in range(COUNT))
    save_file({name: torch.full((4,), i, dtype=torch.float32) for i, name in enumerate(names)}, source)
    wpack.convert(source, output=folder / "many.wpack", layout="replicate", overwrite=True, progress=False)
    found = {name: [] for name in LOAD}
    for turn in range(rounds):
        for name in sorted(LOAD, reverse=turn % 2 == 1):
            command = [sys.executable, "-c", LOAD[name] + MEASURE, str(folder)]
            out = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
            wall, cpu, count = json.loads(out)
            assert count == COUNT, (name, count)
            found[name].append((wall, cpu))
    print(f"{COUNT} tensors, median (least..greatest) of {rounds}\n")
    print("| loader | processor time, s | wall time, s |")
    print("| --- | --- | --- |")
    for name, values in found.items():
        cells = []
        for at in (1, 0):
            column = [value[at] for value in values]
            cells.append(f"{statistics.median(column):.3f} ({min(column):.3f}..{max(column):.3f})")
        print(f"| {name} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
