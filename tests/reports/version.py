"""Wan's pipeline in whichever diffsynth is first on the path: same values from a pack, and its own device."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from unittest import mock

import boundary
import report2
import runs
import small_models
import torch
from diffsynth.core import ModelConfig
from diffsynth.pipelines.wan_video import WanVideoPipeline

import wpack
from wpack.integrations import diffsynth
from wpack.integrations._pages import MappedPacks, unwritten
from wpack.integrations.diffsynth._known import version


def main() -> None:
    """Runs and checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve() / "version"
    made = small_models.make(folder, "tiny", ["wan_dit", "wan_text", "wan_vae"])
    small_models.register(folder)
    pack = folder / "wan.wpack"
    dit = str(made["wan_dit"][0].with_name("diffusion_pytorch_model-*.safetensors"))
    sources = {"dit": dit, "text": str(made["wan_text"][0]), "vae": str(made["wan_vae"][0])}
    wpack.convert(sources, pack, dtype="bf16", overwrite=True, progress=False)
    files = json.loads(report2.files_of(folder))
    bounds = runs.Bounds()
    name = f"diffsynth {version()}"
    stock = load(files, "cpu").state_dict()
    diffsynth.install([pack])
    model = load(files, "cpu")
    packed, packs = model.state_dict(), MappedPacks()
    bounds.true(f"{name}: names are stock's", list(stock) == list(packed))
    bounds.true(f"{name}: values are stock's", all(torch.equal(stock[key], packed[key]) for key in stock))
    shared = all(packs.origin(each) is not None and unwritten(each) for each in model.parameters())
    bounds.true(f"{name}: every weight is a view of the pack, no page written", shared)
    diffsynth.uninstall()
    size = wpack.open(pack).shard(0, 1).explain().mapped_bytes
    for rank in range(4):
        with mock.patch.dict(os.environ, LOCAL_RANK=str(rank)), boundary.recorded(4) as devices:
            load(files, "cuda")
        bounds.true(f"{name}: stock, LOCAL_RANK {rank}, asks for index 0", devices.indices() == {0})
        with mock.patch.dict(os.environ, LOCAL_RANK=str(rank)), boundary.recorded(4) as devices:
            diffsynth.install([pack])
            load(files, "cuda")
        diffsynth.uninstall()
        bounds.true(f"{name}: wpack, LOCAL_RANK {rank}, puts {size} bytes on its own", devices.bytes == {rank: size})
    bounds.finish()


def load(files: list[str], device: str) -> WanVideoPipeline:
    """The pipeline, by paths of files."""
    configs = [ModelConfig(path=path) for path in files]
    return WanVideoPipeline.from_pretrained(device=device, model_configs=configs, tokenizer_config=None)


if __name__ == "__main__":
    os.environ["DIFFSYNTH_SKIP_DOWNLOAD"] = "True"
    main()
