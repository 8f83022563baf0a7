"""GPU 0 overfull: four processes, DeepSpeed ZeRO-2 with the optimizer on the CPU, full fine-tuning of the DiT.

The report's command, ``accelerate launch`` of a script that loads onto ``"cuda"`` before any device has been set,
stock against wpack. Which device each process asks for, and for how many bytes; then memory, losses and what is
saved of the training itself, on the CPU. Full fine-tuning ends with a private copy of what is trained in every
process, by nature: what is saved is all that is not trained, and everything up to the moment that training writes.

"Beyond the imports" is here beyond what the noted load, whose model is dropped, left behind.

The optimizer on the CPU is the script's own, torch's AdamW. With ``--cpu-adam`` it is DeepSpeed's, which is compiled at
its first use: minutes, and a C++ compiler.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import report3
import runs

import wpack

RANKS = 4


def main() -> None:
    """Runs and checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", default="small")
    parser.add_argument("--cpu-adam", action="store_true", help="DeepSpeed's own optimizer")
    options = parser.parse_args()
    folder = options.folder.resolve() / f"full-{options.scale}"
    size = report3.prepare("wan", folder, options.scale)
    plan = wpack.plan(report3.sources("wan", folder), dtype="bf16")
    stock = train("stock", options.cpu_adam, folder, None)
    packed = train("wpack", options.cpu_adam, folder, ["--pack", str(folder / "wan.wpack")])
    bounds = runs.Bounds()
    if options.cpu_adam:
        used = {row["optimizer"] for run in (stock, packed) for rank in run.ranks for row in rank if "optimizer" in row}
        bounds.true(f"the optimizer is DeepSpeed's own: {', '.join(used)}", used == {"DeepSpeedCPUAdam"})
    devices(stock, packed, plan, folder / "wan.wpack", bounds)
    training(stock, packed, size, folder, bounds)
    bounds.finish()


def train(loader: str, cpu_adam: bool, folder: Path, adapter: list[str] | None) -> runs.Run:
    """The report's command; the same with and without the adapter."""
    print(f"full fine-tuning, {loader} ...", file=sys.stderr, flush=True)
    runs.drop_from_cache(folder / "wan.wpack")
    arguments = report3.arguments("wan", folder, folder / loader / "saved")
    return runs.run(
        loader,
        "train_overfull.py",
        [*arguments, "--trainable_models", "dit", "--learning_rate", "1e-4"],
        folder,
        processes=RANKS,
        adapter=adapter,
        deepspeed="zero2-offload",
        cpu_adam=cpu_adam,
        accelerate=True,
        environment=report3.environment(folder),
    )


def devices(stock: runs.Run, packed: runs.Run, plan: dict[str, Any], pack: Path, bounds: runs.Bounds) -> None:
    """Which device, and how many bytes on each."""
    size = sum(component["bytes"] for component in plan["components"])
    rows = []
    for run in (stock, packed):
        figures = [next(row for row in rank if "asked" in row) for rank in run.ranks]
        for index in range(RANKS):
            held = [figure["bytes"].get(str(index), 0) for figure in figures]
            rows.append([run.name, index, *(each / runs.MIB for each in held), sum(held) / runs.MIB])
        asked = [figure["asked"] for figure in figures]
        if run is stock:
            bounds.true("stock: every process asks for index 0, as reported", asked == [[0]] * RANKS)
            continue
        bounds.true("wpack: every process asks for its own device and no other", asked == [[r] for r in range(RANKS)])
        own = [figure["bytes"] == {str(r): size} for r, figure in enumerate(figures)]
        bounds.true(f"wpack: bytes of each process on its device are those of `wpack plan`, {size}", all(own))
        read = sum(figure["read"] for figure in figures)
        bounds.at_most("wpack: file read from storage by all processes, in sizes of it", read / pack.stat().st_size, 1.1)
    head = ("loader", "device", *(f"of rank {rank}" for rank in range(RANKS)), "on the device")
    print("\nMiB that the processes ask to have on each device, what is cast counted in both types\n\n" + runs.table(head, rows) + "\n")


def training(stock: runs.Run, packed: runs.Run, size: int, folder: Path, bounds: runs.Bounds) -> None:
    """The training itself: memory, losses, and what is saved."""
    pairs = stock, packed
    bounds.true("losses are those of stock, bit for bit", stock.losses() == packed.losses())
    bounds.true("every rank took 2 steps", [len(rank) for rank in packed.losses()] == [2] * RANKS)
    saved = [folder / run.name / "saved/epoch-0.safetensors" for run in pairs]
    bounds.true("the saved DiT is that of stock, bit for bit", saved[0].read_bytes() == saved[1].read_bytes())
    bounds.at_most("anonymous after load, MiB", packed.over_imports("load"), 32)
    bounds.at_least("stock has a copy per process after load, MiB", stock.over_imports("load"), 0.9 * RANKS * size / runs.MIB)
    trained = packed.points("load", "trainable")[0] / runs.MIB
    bounds.at_least("full fine-tuning: a private copy of the DiT per process, MiB", packed.over_imports("steps"), RANKS * trained)
    saving = stock.over_imports("steps") - packed.over_imports("steps")
    bounds.at_least("after 2 steps the frozen models are still shared: saved MiB", saving, 0.8 * RANKS * (size / runs.MIB - trained))
    head = ("loader", "after load", "after prepare", "after 2 steps", "PSS, 2 steps", "loss of rank 0")
    rows = [[run.name, *(run.over_imports(at) for at in ("load", "prepare", "steps")), run.pss("steps")] for run in pairs]
    for row, run in zip(rows, pairs, strict=True):
        row.append(", ".join(f"{float.fromhex(value):.6f}" for value in run.losses()[0]))
    print(f"\nMiB beyond the imports, summed over {RANKS} processes; anonymous memory but for PSS\n\n" + runs.table(head, rows))
    print(
        f"\nFull fine-tuning ends with a private copy of the DiT ({trained:.0f} MiB), its gradients and the optimizer's state in"
        f"\nevery process, by nature. After load {packed.over_imports('load'):.0f} MiB are private with wpack, {stock.over_imports('load'):.0f} without;"
        f"\nafter 2 steps the text encoder and the VAE are still shared, which saves {saving:.0f} MiB.\n"
    )


if __name__ == "__main__":
    main()
