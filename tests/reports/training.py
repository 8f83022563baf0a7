"""What the two training scripts share: data, the loop's points of measurement, and the parser.

The scripts follow the training scripts of DiffSynth-Studio's repository, which its wheel does not ship;
nothing in them knows of packs.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import accelerate
import measure
import small_models
import torch
from diffsynth.core import UnifiedDataset
from diffsynth.diffusion import runner
from diffsynth.diffusion.logger import ModelLogger
from diffsynth.diffusion.parsers import add_general_config, add_image_size_config


def parse() -> argparse.Namespace:
    """DiffSynth's own options for training."""
    parser = add_image_size_config(add_general_config(argparse.ArgumentParser()))
    parser.add_argument("--initialize_model_on_cpu", default=False, action="store_true")
    return parser.parse_args()


def start() -> accelerate.Accelerator:
    """The accelerator, before anything is loaded."""
    small_models.register(os.environ["SMALL_MODELS"])
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        measure.deepspeed_without_gpu()
    accelerator = accelerate.Accelerator(
        kwargs_handlers=[accelerate.DistributedDataParallelKwargs(find_unused_parameters=False)]
    )
    measure.point("imports")
    accelerate.utils.set_seed(1)
    return accelerator


def data(args: argparse.Namespace) -> UnifiedDataset:
    """Images and prompts."""
    return UnifiedDataset(
        base_path=args.dataset_base_path,
        metadata_path=args.dataset_metadata_path,
        repeat=args.dataset_repeat,
        data_file_keys=args.data_file_keys.split(","),
        main_data_operator=UnifiedDataset.default_image_operator(
            base_path=args.dataset_base_path, max_pixels=args.max_pixels, height=args.height, width=args.width
        ),
    )


class Recorder(ModelLogger):
    """DiffSynth's logger, which also measures after the second step."""

    def on_step_end(self, *values: Any, **more: Any) -> None:
        super().on_step_end(*values, **more)
        if self.num_steps == 2:
            measure.point("steps")


class Measured:
    """Beside a training module: measures when the models are loaded, before LoRA's own modules are put into them."""

    def switch_pipe_to_training_mode(self, *values: Any, **more: Any) -> None:
        measure.point("models")
        super().switch_pipe_to_training_mode(*values, **more)  # type: ignore[misc]


def train(accelerator: accelerate.Accelerator, args: argparse.Namespace, model: torch.nn.Module) -> None:
    """DiffSynth's training task, measured around ``prepare``."""
    measure.point("load", trainable=measure.trainable_bytes(model), computed=measure.computed_bytes(model))
    model.register_forward_hook(lambda _module, _inputs, loss: measure.record(loss=loss.item().hex()))
    prepare = accelerator.prepare

    def measured(*objects: Any, **options: Any) -> Any:
        prepared = prepare(*objects, **options)
        measure.point("prepare", optimizer=type(getattr(prepared[0], "basic_optimizer", None)).__name__)
        return prepared

    accelerator.prepare = measured  # type: ignore[method-assign]
    accelerate.utils.set_seed(2 + accelerator.process_index)
    logger = Recorder(args.output_path, remove_prefix_in_ckpt=args.remove_prefix_in_ckpt)
    runner.launch_training_task(accelerator, data(args), model, logger, args=args)
    measure.record(done=True)


def make_data(folder: Path, count: int) -> Path:
    """Images and prompts for a run; the metadata file."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        pixels = (torch.rand(32, 32, 3, generator=generator) * 255).to(torch.uint8)
        Image.fromarray(pixels.numpy()).save(folder / f"{number}.png")
        # Edited from two pictures, itself and the first.
        rows.append({"image": f"{number}.png", "prompt": f"picture number {number}", "edit_image": [f"{number}.png", "0.png"]})
    path = folder / "metadata.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
