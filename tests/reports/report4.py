"""Full scale on one machine of 24 GiB: models that four processes cannot each have a copy of.

Wan2.2-TI2V-5B with its VAE and text encoder in random bytes, 22.8 GB in bf16: four processes load all of it from
packs and take one step of LoRA, at the least size that the model takes. DiffSynth-Studio alone is ended at the
same limit of memory, by a watchdog, before the machine would be. Then Wan2.2-I2V-A14B and Qwen-Image-Edit-2509 from
sparse stand-ins: what loading takes in 4 and 8 processes.

Files are made, converted and deleted one model at a time: at most 26 GB of disk at once. ``--layers`` cuts the
models to so many layers of full width, to try it out.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import large_files
import packing
import published
import runs
import small_models
import training
import watch

import wpack

RANKS = 4
GIB = 1 << 30
OWN_OF_CONVERTER = 512
TARGETS = "q,k,v,o,ffn.0,ffn.2"
STAND_INS = {"I2V-A14B": ("wan", published.I2V_A14B), "Qwen-Image-Edit-2509": ("qwen", published.QWEN_IMAGE_EDIT)}


def main() -> None:
    """Runs and checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, help="cut the models to so many layers")
    parser.add_argument("--limit", type=float, default=14.0, help="GiB of memory that all processes may have of their own")
    parser.add_argument("--parts", default="stand-ins,train")
    options = parser.parse_args()
    bounds = runs.Bounds()
    folder = options.folder.resolve() / ("full" if options.layers is None else f"full-{options.layers}")
    folder.mkdir(parents=True, exist_ok=True)
    for part in options.parts.split(","):
        place = folder / part
        shutil.rmtree(place, ignore_errors=True)
        try:
            {"train": train, "stand-ins": stand_ins}[part](place, options.layers, int(options.limit * GIB), bounds)
        finally:
            for path in place.rglob("*"):
                if path.suffix in {".wpack", ".safetensors", ".pth"} and "saved" not in path.parts:
                    path.unlink()
    bounds.finish()


def train(folder: Path, layers: int | None, limit: int, bounds: runs.Bounds) -> None:
    """Wan2.2-TI2V-5B."""
    published.register(folder, published.TI2V_5B, layers)
    small_models.wan_tokenizer(folder / "Wan-AI/Wan2.1-T2V-1.3B/google/umt5-xxl")
    training.make_data(folder / "data", RANKS)
    sizes = {model.component: size_of(model, layers) for model in published.TI2V_5B}
    print(f"Wan2.2-TI2V-5B, bytes in bf16: {sizes}; {RANKS} copies are {RANKS * sum(sizes.values()) / 1e9:.1f} GB", flush=True)
    if layers is not None:
        # As much above the imports as two copies of the DiT.
        limit = RANKS * GIB + 2 * sizes["dit"]
    for model in published.TI2V_5B:
        write(model, folder, layers)
        if model.component == "dit":
            stock(folder, model, limit, sizes["dit"], bounds)
        conversions([convert(model, folder, layers, bounds)], bounds)
        for path in model.files(folder):
            path.unlink()
    watched = watch.Watch(limit)
    packs = [f"{model.model_id}={model.pack(folder)}" for model in published.TI2V_5B]
    adapter = [word for pack in packs for word in ("--pack", pack)]
    found = start("wpack", folder, published.TI2V_5B, adapter, watched)
    report_training(found, watched, limit, bounds)


def write(model: published.Published, folder: Path, layers: int | None) -> None:
    """The files of one model."""
    stored = size_of(model, layers) * model.stored.itemsize // 2
    packing.room(folder, stored + (GIB if taken(model) else size_of(model, layers)))
    say(f"{model.origin}: {stored / 1e9:.1f} GB of random values ...")
    names, paths = published.shapes(model, layers), model.files(folder)
    if model.file.endswith(".pth"):
        large_files.write_pth(paths[0], names, model.stored)
    else:
        large_files.write_safetensors(paths, names, model.stored, sparse=False)
    for path in paths:
        runs.drop_from_cache(path)


def convert(model: published.Published, folder: Path, layers: int | None, bounds: runs.Bounds) -> packing.Conversion:
    """Its pack. Where the files are taken off the disk meanwhile, the pack is compared with what was in them."""
    say(f"{model.origin}: wpack convert ...")
    source, pack = model.source(folder), model.pack(folder)
    if not taken(model):
        return packing.convert([source], pack)
    made = packing.convert_taking([source], model.files(folder), pack)
    tensors = wpack.open(pack).shard(0, 1).state_dict(progress=False)
    same = large_files.holds(tensors, published.shapes(model, layers), model.stored)
    bounds.true(f"{pack.name}: every tensor is what was in the files", same)
    return made


def taken(model: published.Published) -> bool:
    """True for files that the disk has no room for beside their pack."""
    return model.file.endswith(".safetensors")


def stock(folder: Path, model: published.Published, limit: int, size: int, bounds: runs.Bounds) -> None:
    """DiffSynth-Studio alone with the DiT alone, until it has more than the limit."""
    watched = watch.Watch(limit)
    say("stock ...")
    try:
        start("stock", folder, [model], None, watched)
        stopped = None
    except watch.Exceeded as error:
        stopped = error
    bounds.true(f"stock: more than the limit of {limit / GIB:.1f} GiB, with the DiT alone", stopped is not None)
    if stopped is None:
        return
    reached = [rows[-1].get("point", rows[-1].get("stage")) for rows in runs.recorded(folder / "stock", RANKS) if rows]
    bounds.true(f"stock: ended while it loads; the last that each rank came to: {reached}", reached == ["imports"] * RANKS)
    imports = sum(rows[0]["anonymous"] for rows in runs.recorded(folder / "stock", RANKS))
    print(
        f"stock was ended at {stopped.found:,} bytes, {stopped.seconds:.0f} s after its start, while it loaded the DiT; that "
        f"alone needs {imports + RANKS * size:,} bytes: the imports and {RANKS} copies in bf16\n",
        flush=True,
    )


def start(
    name: str, folder: Path, models: Sequence[published.Published], adapter: list[str] | None, watched: watch.Watch
) -> runs.Run:
    """One training run, on images of 32 by 32: one token of the DiT."""
    saved = folder / name / "saved"
    values = ["--model_id_with_origin_paths", ",".join(model.origin for model in models)]
    values += ["--dataset_base_path", str(folder / "data"), "--dataset_metadata_path", str(folder / "data/metadata.jsonl")]
    values += ["--data_file_keys", "image", "--height", "32", "--width", "32", "--output_path", str(saved)]
    values += ["--initialize_model_on_cpu", "--use_gradient_checkpointing"]
    values += ["--lora_base_model", "dit", "--lora_target_modules", TARGETS, "--lora_rank", "4"]
    environment = {"SMALL_MODELS": str(folder), "DIFFSYNTH_MODEL_BASE_PATH": str(folder), "DIFFSYNTH_SKIP_DOWNLOAD": "True"}
    return runs.run(
        name, "train_ti2v.py", values, folder,
        processes=RANKS, adapter=adapter, environment=environment, timeout=3600, start=watched,
    )  # fmt: skip


def report_training(found: runs.Run, watched: watch.Watch, limit: int, bounds: runs.Bounds) -> None:
    """The table of the training run, and its bounds."""
    points = ("imports", "models", "load", "prepare", "step")
    rows: list[list[object]] = []
    for rank in range(RANKS):
        own = [found.points(at, "anonymous")[rank] / runs.MIB for at in points]
        spent = [next(row for row in found.ranks[rank] if row.get("stage") == stage) for stage in ("load", "step")]
        read = [each["read"] / runs.MIB for each in spent]
        loss = next(float.fromhex(row["loss"]) for row in found.ranks[rank] if "loss" in row)
        seconds = [f"{each['seconds']:.1f}" for each in spent]
        rows.append([rank, *own, *seconds, *read, f"{loss:.6f}"])
        bounds.true(f"rank {rank}: the loss of the step is a number", math.isfinite(loss))
    sums = [sum(found.points(at, "anonymous")) / runs.MIB for at in points]
    reads = [sum(row["read"] for rank in found.ranks for row in rank if row.get("stage") == at) / runs.MIB for at in ("load", "step")]
    rows.append(["all", *sums, "", "", *reads, ""])
    rows.append(["PSS of all", *(sum(found.points(at, "pss")) / runs.MIB for at in points), "", "", "", "", ""])
    head = ["rank", *points, "load, s", "step, s", "read to load", "read to step", "loss"]
    print(f"\nMiB of anonymous memory of each of {RANKS} processes; MiB read from storage\n\n" + runs.table(head, rows) + "\n")
    trained = sum(found.points("load", "trainable")) / runs.MIB
    print(f"        {trained:.1f} MiB are trained; the most that all processes had at once: {watched.peak:,} bytes")
    bounds.true("every model comes from its pack", found.output.count("wpack: ") == len(published.TI2V_5B))
    bounds.at_most("anonymous after loading beyond the imports, MiB of all ranks", found.over_imports("models"), 32)
    bounds.at_most("anonymous after prepare beyond what is trained, MiB", found.over_imports("prepare") - trained, 128)
    bounds.at_most("anonymous of everything at its peak, GiB", watched.peak / GIB, limit / GIB)


def stand_ins(folder: Path, layers: int | None, _limit: int, bounds: runs.Bounds) -> None:
    """The larger models, without a byte of theirs on the disk."""
    rows: list[list[object]] = []
    folder.mkdir(parents=True)
    for name, (pipeline, models) in STAND_INS.items():
        published.register(folder, models, layers)
        made = [make_sparse(model, folder, layers) for model in models]
        conversions(made, bounds)
        length = sum(each.written for each in made)
        on_disk = sum(packing.on_disk(each.pack) for each in made)
        say(f"{name}: wpack verify ...")
        seconds = sum(packing.verify(each.pack) for each in made)
        print(f"{name}: packs of {length / 1e9:.1f} GB, {on_disk / 1e6:.1f} MB of them on the disk; verified in {seconds:.0f} s")
        bounds.at_most(f"{name}: of the packs on the disk, MB", on_disk / 1e6, 100)
        size = sum(size_of(model, layers) for model in models)
        modules = empty(f"{name}-empty", pipeline, models, folder, layers)
        for ranks in (4, 8):
            found = load(f"{name}-{ranks}", pipeline, models, folder, ranks, size, modules, bounds)
            rows.append([name, ranks, size / 1e9, *found])
        for each in made:
            each.pack.unlink()
    head = ("model", "processes", "GB of each", "load, s", "processor of all, s", "anonymous of all, MiB")
    head += ("of it tables", "of it modules", "PSS of all, MiB")
    print("\nLoading from packs; memory beyond the imports\n\n" + runs.table(head, rows) + "\n")


def make_sparse(model: published.Published, folder: Path, layers: int | None) -> packing.Conversion:
    """The sparse pack of a model."""
    paths, size = model.files(folder), size_of(model, layers)
    # What the converter may be ahead of the holes.
    packing.room(folder, 4 << 30)
    large_files.write_safetensors(paths, published.shapes(model, layers), model.stored, sparse=True)
    say(f"{model.origin}: wpack convert, {size / 1e9:.1f} GB of zeros ...")
    try:
        return packing.convert_sparse([model.source(folder)], model.pack(folder))
    finally:
        for path in paths:
            path.unlink()


def load(
    run: str, pipeline: str, models: Sequence[published.Published], folder: Path, ranks: int, size: int, modules: float,
    bounds: runs.Bounds,
) -> list[object]:  # fmt: skip
    """Loads in so many processes: seconds of the slowest, processor time and memory of all."""
    packs = [(model.model_id, str(model.pack(folder))) for model in models]
    loaded, own, pss = processes(run, ["--pipeline", pipeline, "--packs", json.dumps(packs), origins(models)], folder, ranks)
    tables = sum(row["computed"] for row in loaded) / runs.MIB
    bounds.true(f"{run}: every process has all {size:,} bytes", all(row["parameters"] == size for row in loaded))
    beyond = own - tables - modules * ranks
    bounds.at_most(f"{run}: anonymous after load beyond tables and modules, MiB of all ranks", beyond, 4 * ranks)
    seconds = max(row["seconds"] for row in loaded)
    spent = [f"{seconds:.2f}", f"{sum(row['processor'] for row in loaded):.1f}"]
    return [*spent, f"{own:.1f}", f"{tables:.1f}", f"{modules * ranks:.1f}", pss]


def empty(run: str, pipeline: str, models: Sequence[published.Published], folder: Path, layers: int | None) -> float:
    """MiB that the models' modules and parameters take in a process as objects, on the meta device, beside their tables."""
    classes = json.dumps([published.made_of(model, layers) for model in models])
    arguments = ["--pipeline", pipeline, "--packs", "[]", "--classes", classes, origins(models)]
    made, own, _ = processes(run, arguments, folder, 1)
    return own - made[0]["computed"] / runs.MIB


def processes(run: str, arguments: list[str], folder: Path, ranks: int) -> tuple[list[dict[str, Any]], float, float]:
    """What each of so many processes noted when it had loaded, and MiB beyond the imports of all: anonymous, and PSS."""
    places = [(rank, rank) for rank in range(ranks)]
    found, output = runs.run_each(run, "load_models.py", arguments, folder, places, ranks)
    loaded = [row for rank in found for row in rank if row.get("point") == "load"]
    if len(loaded) != ranks:
        raise SystemExit(f"a process of {run} failed:\n" + runs.tail(output))
    before = [row for rank in found for row in rank if row.get("point") == "imports"]
    own, pss = (sum(a[key] - b[key] for a, b in zip(loaded, before, strict=True)) / runs.MIB for key in ("anonymous", "pss"))
    return loaded, own, pss


def origins(models: Sequence[published.Published]) -> str:
    """As a command line names them."""
    return ",".join(model.origin for model in models)


def conversions(made: Sequence[packing.Conversion], bounds: runs.Bounds) -> None:
    """What converting took, and its bound."""
    head = ("pack", "read, GB", "written, GB", "seconds", "processor, s", "own memory, MiB")
    rows = [
        [each.pack.name, f"{each.read / 1e9:.2f}", f"{each.written / 1e9:.2f}", f"{each.seconds:.1f}", f"{each.processor:.1f}"]
        + [each.own_memory / runs.MIB]
        for each in made
    ]
    print("\nThe converter; memory of its own at its peak\n\n" + runs.table(head, rows) + "\n", flush=True)
    for each in made:
        bounds.at_most(f"{each.pack.name}: the converter's own memory, MiB", each.own_memory / runs.MIB, OWN_OF_CONVERTER)


def size_of(model: published.Published, layers: int | None) -> int:
    """Bytes in bf16."""
    return 2 * sum(math.prod(shape) for shape in published.shapes(model, layers).values())


def say(line: str) -> None:
    """Progress."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
