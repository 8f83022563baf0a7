"""Trains Qwen-Image to edit pictures: a script as users have it."""

from __future__ import annotations

from typing import Any

import peft  # noqa: F401
import training
from diffsynth.core import ModelConfig
from diffsynth.diffusion.loss import FlowMatchSFTLoss
from diffsynth.diffusion.training_module import DiffusionTrainingModule
from diffsynth.pipelines.qwen_image import QwenImagePipeline
from transformers import Qwen2_5_VLModel, Qwen2Tokenizer, Qwen2VLProcessor  # noqa: F401


class QwenImageTrainingModule(DiffusionTrainingModule):
    """The pipeline, in the mode that its loss is computed in."""

    def __init__(self, args: Any, device: Any) -> None:
        super().__init__()
        configs = self.parse_model_configs(args.model_paths, args.model_id_with_origin_paths, device=device)
        self.pipe = QwenImagePipeline.from_pretrained(
            device=device,
            model_configs=configs,
            tokenizer_config=ModelConfig(model_id="Qwen/Qwen-Image", origin_file_pattern="tokenizer/"),
            processor_config=ModelConfig(model_id="Qwen/Qwen-Image-Edit", origin_file_pattern="processor/"),
        )
        self.switch_pipe_to_training_mode(
            self.pipe,
            args.trainable_models,
            args.lora_base_model,
            args.lora_target_modules,
            args.lora_rank,
            lora_checkpoint=args.lora_checkpoint,
        )
        self.use_gradient_checkpointing = args.use_gradient_checkpointing

    def forward(self, data: Any, inputs: Any = None) -> Any:
        """The loss of one item."""
        shared = {
            "input_image": data["image"],
            "height": data["image"].size[1],
            "width": data["image"].size[0],
            "cfg_scale": 1,
            "rand_device": self.pipe.device,
            "use_gradient_checkpointing": self.use_gradient_checkpointing,
            "edit_image": data["edit_image"],
            # To a megapixel, elsewhere; here that would be the larger part of the work.
            "edit_image_auto_resize": False,
            "layer_num": None,
        }
        inputs = shared, {"prompt": data["prompt"]}, {"negative_prompt": ""}
        for unit in self.pipe.units:
            inputs = self.pipe.unit_runner(unit, self.pipe, *inputs)
        return FlowMatchSFTLoss(self.pipe, **inputs[0], **inputs[1])


class Measured(training.Measured, QwenImageTrainingModule):
    """The same, measured when the models are loaded."""


if __name__ == "__main__":
    args = training.parse()
    accelerator = training.start()
    device = "cpu" if args.initialize_model_on_cpu else accelerator.device
    training.train(accelerator, args, Measured(args, device))
