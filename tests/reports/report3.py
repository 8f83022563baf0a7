"""LoRA in four processes on one host: how much memory the processes have of their own.

The real Qwen-Image and Wan pipelines, training modules and ``launch_training_task`` of the installed wheel,
at reduced width; the script as it is against the same command line through the launcher.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import runs
import small_models
import training

import wpack

RANKS = 4
MODELS = {
    "qwen": ("train_qwen.py", ["qwen_dit", "qwen_text", "qwen_vae"], "to_q,to_k,to_v,img_mlp.net.2"),
    "wan": ("train_wan.py", ["wan_dit", "wan_text", "wan_vae"], "q,k,v,o,ffn.0,ffn.2"),
}
STAGES = {"ddp": None, "zero2": "zero2", "zero3": "zero3"}


def main() -> None:
    """Runs and checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="qwen,wan")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--scale", default="small", choices=small_models.SCALES)
    options = parser.parse_args()
    bounds = runs.Bounds()
    rows = []
    for model in options.models.split(","):
        folder = options.folder.resolve() / f"{model}-{options.scale}"
        prepared = prepare(model, folder, options.scale)
        for stage in options.stages.split(","):
            stock = train(model, stage, folder, None)
            packed = train(model, stage, folder, ["--pack", str(folder / f"{model}.wpack")])
            rows += [row(model, stage, stock), row(model, stage, packed)]
            check(bounds, f"{model} {stage}", stage, prepared, stock, packed, folder)
    head = ("model", "parallel", "loader", "after load", "with LoRA", "after prepare", "after 2 steps", "PSS, 2 steps", "loss of rank 0")
    print(f"\nMiB beyond the imports, summed over {RANKS} processes; anonymous memory but for PSS\n")
    print(runs.table(head, rows) + "\n")
    bounds.finish()


def prepare(model: str, folder: Path, scale: str) -> int:
    """Checkpoints, data and the pack, which the converter makes from the files as they are; the model's bytes in bf16."""
    small_models.make(folder, scale, MODELS[model][1])
    training.make_data(folder / "data", 2 * RANKS)
    wpack.convert(sources(model, folder), folder / f"{model}.wpack", dtype="bf16", overwrite=True, progress=False)
    return wpack.open(folder / f"{model}.wpack").shard(0, 1).explain().mapped_bytes


def sources(model: str, folder: Path) -> dict[str, str]:
    """The model's files by component, as the converter takes them."""
    found = {}
    for name in MODELS[model][1]:
        model_id, file, shards = small_models.PUBLISHED[name]
        found[name.removeprefix(f"{model}_")] = str(folder / model_id / file.format("-*" if shards > 1 else ""))
    return found


def train(model: str, stage: str, folder: Path, adapter: list[str] | None) -> runs.Run:
    """One run; the command line is the same with and without the adapter."""
    script, _, targets = MODELS[model]
    name = f"{stage}-{'stock' if adapter is None else 'wpack'}"
    print(f"{model} {name} ...", file=sys.stderr, flush=True)
    values = arguments(model, folder, folder / name / "saved")
    values += ["--lora_base_model", "dit", "--lora_target_modules", targets, "--lora_rank", "4"]
    return runs.run(
        name,
        script,
        values,
        folder,
        processes=RANKS,
        adapter=adapter,
        deepspeed=STAGES[stage],
        environment=environment(folder),
    )


def arguments(model: str, folder: Path, saved: Path) -> list[str]:
    """Models by id and file name, as in DiffSynth-Studio's own examples, and the data."""
    published = [small_models.PUBLISHED[each] for each in MODELS[model][1]]
    origins = ",".join(f"{model_id}:{file.format('*')}" for model_id, file, _ in published)
    values = ["--model_id_with_origin_paths", origins, "--dataset_base_path", str(folder / "data")]
    values += ["--dataset_metadata_path", str(folder / "data/metadata.jsonl"), "--data_file_keys", "image,edit_image"]
    return [*values, "--height", "32", "--width", "32", "--output_path", str(saved), "--initialize_model_on_cpu"]


def environment(folder: Path) -> dict[str, str]:
    """Where the models are, and that none is to be downloaded."""
    values = {"SMALL_MODELS": str(folder), "DIFFSYNTH_MODEL_BASE_PATH": str(folder)}
    return values | {"DIFFSYNTH_SKIP_DOWNLOAD": "True"}


def row(model: str, stage: str, run: runs.Run) -> list[object]:
    """A line of the table."""
    loss = ", ".join(f"{float.fromhex(value):.6f}" for value in run.losses()[0])
    loader = "stock" if run.name.endswith("stock") else "wpack"
    return [model, stage, loader, *(run.over_imports(at) for at in ("models", "load", "prepare", "steps")), run.pss("steps"), loss]


def check(
    bounds: runs.Bounds, name: str, stage: str, size: int, stock: runs.Run, packed: runs.Run, folder: Path
) -> None:
    """What must hold of a pair of runs."""
    model = size / runs.MIB
    trained = sum(packed.points("load", "trainable")) / runs.MIB
    bounds.true(f"{name}: losses are those of stock, bit for bit", stock.losses() == packed.losses())
    bounds.true(f"{name}: every rank took 2 steps", [len(rank) for rank in packed.losses()] == [2] * RANKS)
    saved = [folder / run.name / "saved/epoch-0.safetensors" for run in (stock, packed)]
    bounds.true(f"{name}: the saved LoRA is that of stock, bit for bit", saved[0].read_bytes() == saved[1].read_bytes())
    bounds.true(f"{name}: the pack was taken for the files", packed.output.count("wpack: ") == 3)
    if stage == "zero3":
        # Each process keeps its part, so that all together hold the model once.
        held = packed.over_imports("models")
        bounds.at_most(f"{name}: anonymous after load beyond the parts, MiB", held - model, 128)
        bounds.at_most(f"{name}: anonymous after load over that of stock, MiB", held - stock.over_imports("models"), 0)
        return
    bounds.at_least(f"{name}: stock has a copy per process after load, MiB", stock.over_imports("models"), 0.9 * RANKS * model)
    own = sum(packed.points("load", "computed")) / runs.MIB
    print(f"        of what follows, {own:.1f} MiB are tables that the model computes, {trained:.1f} MiB are trained")
    bounds.at_most(f"{name}: anonymous after load, MiB", packed.over_imports("models"), 32)
    bounds.at_most(
        f"{name}: anonymous after prepare beyond what is trained, MiB", packed.over_imports("prepare") - trained, 128
    )
    bounds.at_least(f"{name}: stock after prepare, MiB", stock.over_imports("prepare"), 0.9 * RANKS * model)
    bounds.at_most(
        f"{name}: PSS after 2 steps less than stock's by the copies but one, MiB",
        packed.pss("steps") - stock.pss("steps"),
        -0.8 * (RANKS - 1) * model,
    )


if __name__ == "__main__":
    main()
