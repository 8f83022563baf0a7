"""Trains Wan as ``train_wan.py`` does, for one step; measured after that, and what loading and the step take."""

from __future__ import annotations

from typing import Any

import measure
import training
from train_wan import WanTrainingModule


class FirstStep(training.Recorder):
    """Measures after the first step: at full size no second is made."""

    spent: measure.Spent

    def on_step_end(self, *values: Any, **more: Any) -> None:
        super().on_step_end(*values, **more)
        if self.num_steps == 1:
            measure.record(stage="step", **self.spent.figures())
            measure.point("step")


class Measured(WanTrainingModule):
    """Measures when the models are loaded, before LoRA's own modules are put into them."""

    def switch_pipe_to_training_mode(self, *values: Any, **more: Any) -> None:
        measure.record(stage="load", **FirstStep.spent.figures())
        measure.point("models")
        super().switch_pipe_to_training_mode(*values, **more)


if __name__ == "__main__":
    args = training.parse()
    accelerator = training.start()
    training.Recorder = FirstStep  # type: ignore[misc]
    FirstStep.spent = measure.Spent()
    model = Measured(args, "cpu" if args.initialize_model_on_cpu else accelerator.device)
    FirstStep.spent = measure.Spent()
    training.train(accelerator, args, model)
