"""GPU 0 overfull: four processes, DeepSpeed ZeRO-2 with the optimizer on the CPU, full fine-tuning of the DiT.

Two things. Which device each process asks for while it loads onto ``"cuda"``, as in the reporter's script, in
which no device had been set before; and the training run itself on the CPU, stock against wpack. Full
fine-tuning ends with a private copy of what is trained in every process, by nature: what is saved is all
that is not trained, and everything up to the moment that training writes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import report2
import report3
import runs

import wpack

RANKS = 4


def main() -> None:
    """Runs and checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", default="small")
    options = parser.parse_args()
    bounds = runs.Bounds()
    devices(options.folder.resolve() / "overfull", bounds)
    training(options.folder.resolve() / f"full-{options.scale}", options.scale, bounds)
    bounds.finish()


def devices(folder: Path, bounds: runs.Bounds) -> None:
    """Which device, and how many bytes on each."""
    report3.prepare("wan", folder, "tiny")
    pack = folder / "wan.wpack"
    size = wpack.open(pack).shard(0, 1).explain().mapped_bytes
    rows = []
    places = [(rank, rank) for rank in range(RANKS)]
    for loader in ("stock", "wpack"):
        arguments = ["--devices", str(RANKS), report2.files_of(folder)]
        arguments += ["--packs", str(pack)] if loader == "wpack" else []
        runs.drop_from_cache(pack)
        found, output = runs.run_each(loader, "devices.py", arguments, folder, places, RANKS)
        figures = [next((row for row in rank if "asked" in row), None) for rank in found]
        if None in figures:
            raise SystemExit(f"a process of {loader} failed:\n{output[-4000:]}")
        for index in range(RANKS):
            held = [figure["bytes"].get(str(index), 0) for figure in figures]  # type: ignore[index]
            rows.append([loader, index, *(each / 1024 for each in held), sum(held) / 1024])
        asked = [figure["asked"] for figure in figures]  # type: ignore[index]
        if loader == "stock":
            bounds.true("stock: every process asks for index 0, as reported", asked == [[0]] * RANKS)
        else:
            bounds.true("wpack: every process asks for its own device and no other", asked == [[r] for r in range(RANKS)])
            own = [figure["bytes"] == {str(r): size} for r, figure in enumerate(figures)]  # type: ignore[index]
            bounds.true(f"wpack: bytes of each process on its device are the plan's, {size}", all(own))
            read = sum(figure["read"] for figure in figures)  # type: ignore[index]
            bounds.at_most("wpack: file read from storage by all processes, in sizes of it", read / pack.stat().st_size, 1.1)
    head = ("loader", "device", *(f"of rank {rank}" for rank in range(RANKS)), "on the device")
    print("\nKiB that the processes ask to have on each device\n\n" + runs.table(head, rows) + "\n")


def training(folder: Path, scale: str, bounds: runs.Bounds) -> None:
    """The run itself: memory, losses, and what is saved."""
    size = report3.prepare("wan", folder, scale)
    pairs = []
    for loader, adapter in (("stock", None), ("wpack", ["--pack", str(folder / "wan.wpack")])):
        print(f"full fine-tuning, {loader} ...", file=sys.stderr, flush=True)
        arguments = report3.arguments("wan", folder, folder / loader / "saved")
        pairs.append(
            runs.run(
                loader,
                "train_wan.py",
                [*arguments, "--trainable_models", "dit", "--learning_rate", "1e-4"],
                folder,
                processes=RANKS,
                adapter=adapter,
                deepspeed="zero2-offload",
                environment=report3.environment(folder),
            )
        )
    stock, packed = pairs
    bounds.true("losses are those of stock, bit for bit", stock.losses() == packed.losses())
    bounds.true("every rank took 2 steps", [len(rank) for rank in packed.losses()] == [2] * RANKS)
    saved = [folder / run.name / "saved/epoch-0.safetensors" for run in pairs]
    bounds.true("the saved DiT is that of stock, bit for bit", saved[0].read_bytes() == saved[1].read_bytes())
    own = sum(packed.points("load", "computed")) / runs.MIB
    bounds.at_most("anonymous after load beyond the tables, MiB", packed.over_imports("load") - own, 32)
    bounds.at_least("stock has a copy per process after load, MiB", stock.over_imports("load"), 0.9 * RANKS * size / runs.MIB)
    frozen = size - packed.points("load", "trainable")[0]
    saving = (stock.over_imports("steps") - packed.over_imports("steps")) * runs.MIB
    bounds.at_least("after 2 steps the frozen models are still shared: saved MiB", saving / runs.MIB, 0.8 * RANKS * frozen / runs.MIB)
    head = ("loader", "after load", "after prepare", "after 2 steps", "PSS, 2 steps")
    rows = [[run.name, *(run.over_imports(at) for at in ("load", "prepare", "steps")), run.pss("steps")] for run in pairs]
    print(f"\nMiB beyond the imports, summed over {RANKS} processes; anonymous memory but for PSS\n\n" + runs.table(head, rows) + "\n")


if __name__ == "__main__":
    main()
