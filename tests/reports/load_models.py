"""Processes that load a pipeline from packs, on the CPU, and note what that takes: forked, so that imports are paid
for once. With ``--classes`` they make the models on the meta device instead: modules and parameters without a byte of weights."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import measure
import published
import runs
import small_models
import torch.distributed as dist
from diffsynth.core import ModelConfig
from diffsynth.core.vram.initialization import skip_model_initialization
from diffsynth.pipelines.qwen_image import QwenImagePipeline
from diffsynth.pipelines.wan_video import WanVideoPipeline

from wpack.integrations import diffsynth

PIPELINES: dict[str, Any] = {"wan": WanVideoPipeline, "qwen": QwenImagePipeline}


def main() -> None:
    """Starts the processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=json.loads, required=True, help="rank and rank on its node of each process")
    parser.add_argument("--pipeline", choices=PIPELINES, required=True)
    parser.add_argument("--packs", type=json.loads, required=True, help="model id and pack of each model, a JSON list")
    parser.add_argument("--classes", type=json.loads, help="class and arguments of each model, a JSON list")
    parser.add_argument("origins", help="the models, as for --model_id_with_origin_paths")
    options = parser.parse_args()
    runs.fork(options.places, (lambda: empty(options.classes)) if options.classes else (lambda: one(options)))


def empty(classes: list[tuple[str, dict[str, Any]]]) -> None:
    """One of the processes, without weights."""
    dist.init_process_group("gloo")
    measure.point("imports")
    models = []
    for path, arguments in classes:
        with skip_model_initialization():
            models.append(published.class_of(path)(**arguments))
    measure.point("load", computed=sum(measure.computed_bytes(model) for model in models))
    dist.destroy_process_group()


def one(options: argparse.Namespace) -> None:
    """One of the processes."""
    small_models.register(os.environ["SMALL_MODELS"])
    dist.init_process_group("gloo")
    for model_id, pack in options.packs:
        diffsynth.install({model_id: pack})
    origins = [origin.split(":") for origin in options.origins.split(",")]
    configs = [ModelConfig(model_id=model_id, origin_file_pattern=pattern) for model_id, pattern in origins]
    measure.point("imports")
    spent = measure.Spent()
    pipe = PIPELINES[options.pipeline].from_pretrained(device="cpu", model_configs=configs, tokenizer_config=None)
    figures = spent.figures()
    parameters = sum(each.numel() * each.element_size() for each in pipe.parameters())
    measure.point("load", parameters=parameters, computed=measure.computed_bytes(pipe), **figures)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
