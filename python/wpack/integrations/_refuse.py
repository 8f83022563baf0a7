"""What no adapter loads, and how it says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .. import WpackError

if TYPE_CHECKING:
    from torch import nn


class QuantizedModelError(WpackError):
    """The model's weights are quantised: what a parameter holds is no tensor of the checkpoint."""


class UnsupportedPartitionError(WpackError):
    """A parameter is partitioned in a way that the adapter does not cover."""


def unexpected_names(
    names: Iterable[str],
    used: Iterable[str],
    error: type[WpackError],
    hint: str = "pass strict=False, or the component that is meant",
) -> None:
    """Refuses tensors of a pack that the model has no place for."""
    unexpected = sorted(set(names) - set(used))
    if unexpected:
        raise error(
            f"the model has no place for {', '.join(unexpected[:5])}"
            + (f" and {len(unexpected) - 5} more" if len(unexpected) > 5 else ""),
            hint=hint,
        )


def quantized_config(values: Mapping[str, Any], where: str) -> None:
    """Refuses a configuration that asks for quantised weights."""
    settings = values.get("quantization_config")
    if settings:
        method = settings.get("quant_method", "unknown") if isinstance(settings, Mapping) else type(settings).__name__
        raise QuantizedModelError(
            f"{where} has a quantization_config (method `{method}`)",
            hint="convert and load the checkpoint that is not quantised, and quantise after loading",
        )


def quantized_model(model: nn.Module) -> None:
    """Refuses a model with quantised parameters (bitsandbytes, torchao, and what else holds packed data)."""
    for name, parameter in model.named_parameters():
        kind = type(parameter).__name__
        packed = not (parameter.dtype.is_floating_point or parameter.dtype.is_complex) and parameter.requires_grad
        if hasattr(parameter, "quant_state") or hasattr(parameter, "tensor_impl") or packed:
            raise QuantizedModelError(
                f"parameter `{name}` is a {kind} of {parameter.dtype}: a quantised weight",
                hint="load the weights into the model before it is quantised",
            )
    if getattr(model, "is_quantized", False) or getattr(model, "hf_quantizer", None) is not None:
        raise QuantizedModelError(
            f"the model ({type(model).__name__}) is quantised",
            hint="load the weights into the model before it is quantised",
        )
