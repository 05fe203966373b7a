"""Refuse 16-bit activations that are dynamic, or in a profile that cannot run them, and name what can."""

from __future__ import annotations

import torch
from executorch.backends.arm.quantizer import QuantizationConfig

from safe_arm._compat.upstream import TosaSpecification
from safe_arm.core.errors import UsageError


def check_activation_width(
    config: QuantizationConfig | None, tosa_spec: TosaSpecification
) -> None:
    """Refuse a config with 16-bit activations that are dynamic, or for a TOSA profile without the int16 extension.

    Stock accepts it and crashes while converting, or while lowering.

    Raises:
        UsageError: they are dynamic, or the profile has no int16; the message names what works.
    """
    if config is None or not has_int16_activations(config):
        return
    if getattr(config.input_activation, "is_dynamic", False):
        raise UsageError(
            "activations of 16 bits (a16w8) cannot be dynamic: convert_pt2e has 8 bits alone; use is_dynamic=False"
        )
    has_integer = tosa_spec.support_integer()
    if not has_integer or not tosa_spec.support_extension("int16"):
        integer = "" if has_integer else "+INT"
        raise UsageError(
            f"16-bit activations (a16w8) need the int16 extension, which {tosa_spec} does not have; "
            f"use {tosa_spec}{integer}+int16, or a config with 8-bit activations"
        )


def has_int16_activations(config: QuantizationConfig | None) -> bool:
    """Tell whether a config has activations of 16 bits."""
    if config is None:
        return False
    specs = (config.input_activation, config.output_activation)
    return any(getattr(spec, "dtype", None) == torch.int16 for spec in specs)
