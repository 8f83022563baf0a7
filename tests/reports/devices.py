"""Processes that load Wan's pipeline onto ``"cuda"`` and note which device each load asked for.

Several such processes are forked. Without ``--packs`` it is DiffSynth-Studio alone. ``--usp`` takes the pipeline's
own path for sequence parallelism and makes two steps of a video, over gloo.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
from contextlib import ExitStack
from unittest import mock

import boundary
import measure
import runs
import small_models
import torch
import torch.distributed as dist
from diffsynth.core import ModelConfig
from diffsynth.core.device import npu_compatible_device as device_names
from diffsynth.pipelines.wan_video import WanVideoPipeline


def main() -> None:
    """Starts the processes, each of which loads and records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, required=True, help="devices that each process sees")
    parser.add_argument("--places", type=json.loads, required=True, help="rank and rank on its node of each process")
    parser.add_argument("--packs", action="append", default=None)
    parser.add_argument("--usp", action="store_true")
    parser.add_argument("paths", help="paths of the models, a JSON list as for --model_paths")
    options = parser.parse_args()
    if options.usp:
        # Before it is made to believe that there is a GPU: what xfuser imports asks the GPU at once.
        importlib.import_module("usp")
    runs.fork(options.places, lambda: one(options))


def one(options: argparse.Namespace) -> None:
    """One of the processes."""
    small_models.register(os.environ["SMALL_MODELS"])
    dist.init_process_group("gloo")
    with ExitStack() as stack:
        devices = stack.enter_context(boundary.recorded(options.devices))
        # There is no GPU and so no nccl, and torch.cpu has no cache to empty.
        stack.enter_context(mock.patch.object(device_names, "IS_CUDA_AVAILABLE", True))
        stack.enter_context(mock.patch.object(dist, "init_process_group", lambda **options: None))
        stack.enter_context(mock.patch.object(torch.cpu, "empty_cache", lambda: None, create=True))
        if options.usp:
            import usp

            stack.enter_context(usp.over_gloo())
        if options.packs is not None:
            from wpack.integrations import diffsynth

            diffsynth.install(options.packs)
        dist.barrier()
        before = measure.read_bytes()
        pipe = WanVideoPipeline.from_pretrained(
            device="cuda",
            model_configs=[ModelConfig(path=path) for path in json.loads(options.paths)],
            tokenizer_config=ModelConfig(model_id="Wan-AI/Wan2.1-T2V-1.3B", origin_file_pattern="google/umt5-xxl/"),
            use_usp=options.usp,
        )
        dist.barrier()
        measure.record(
            asked=sorted(devices.indices()),
            libraries={name: sorted(found) for name, found in devices.by_library().items()},
            bytes=devices.bytes,
            set=devices.set,
            read=measure.read_bytes() - before,
        )
        if options.usp:
            video = pipe(
                "picture number", height=64, width=64, num_frames=5, num_inference_steps=2, seed=0, tiled=False,
                output_type="floatpoint", progress_bar_cmd=lambda steps: steps,
            )  # fmt: skip
            measure.record(video=[value.hex() for value in video.float().flatten().tolist()[:4096]])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
