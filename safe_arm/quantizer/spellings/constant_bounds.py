"""Clamps whose bounds are constant tensors of one number are clamps with numbers.

Stock gives a clamp with tensors the domain of what it reads, and the bounds that domain as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from safe_arm.quantizer.graphs.constant_values import ConstantWriter, number_of
from safe_arm.quantizer.graphs.graph_edits import is_float32, tensor_of

_ATEN = torch.ops.aten
_CLAMP = _ATEN.clamp.default


def _clamped(
    write: ConstantWriter,
    x: Node,
    low: Node | None = None,
    high: Node | None = None,
) -> Node | None:
    numbers = []
    for bound in (low, high):
        number = None
        if bound is not None:
            number = _number(write, bound, x)
            if number is None:
                return None
        numbers.append(number)
    return write(_CLAMP, x, *numbers)


def _number(write: ConstantWriter, bound: Node, x: Node) -> float | None:
    """Return the number that a bound of a value is; None if it is none, or the value is broadcast to it."""
    constant, value = write.value_of(bound), tensor_of(x)
    if constant is None or value is None or not is_float32(x):
        return None
    is_one = constant.numel() == 1 and constant.dim() <= value.dim()
    if not is_one and constant.shape != value.shape:
        return None
    return number_of(constant)


BOUNDS: dict[Any, Callable[..., Node | None]] = {_ATEN.clamp.Tensor: _clamped}
