"""Trains Wan as the script of the report did: it loads onto ``"cuda"`` before any device has been set.

That load is noted and dropped, as there is no GPU; training then goes on from the CPU.
"""

from __future__ import annotations

import os

import noted
import small_models
import training
from train_wan import WanTrainingModule

if __name__ == "__main__":
    args = training.parse()
    small_models.register(os.environ["SMALL_MODELS"])
    noted.load(int(os.environ["LOCAL_WORLD_SIZE"]), lambda device: WanTrainingModule(args, device))
    accelerator = training.start()
    training.train(accelerator, args, WanTrainingModule(args, "cpu"))
