"""Keep biases of dynamically quantised layers float: their scale is known only at run time."""

from __future__ import annotations

from dataclasses import replace

from executorch.backends.arm.quantizer import QuantizationConfig


def with_float_bias_if_dynamic(
    config: QuantizationConfig | None,
) -> QuantizationConfig | None:
    """Return a config as it is, but for a dynamic one: that without a bias.

    Stock derives a bias's scale from the activation's while converting, and dies where there is none yet (T12).
    """
    if config is None or not getattr(config.input_activation, "is_dynamic", False):
        return config
    return replace(config, bias=None)
