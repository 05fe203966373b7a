"""The upper bound of a sum of squares is that of its root or its logarithm, which are computed in two steps then."""

from __future__ import annotations

import math
from types import NoneType
from typing import Any, TypeGuard

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.graph_edits import Writer, bounds_of, is_call, rewrite
from safe_arm.quantizer.precision.sums_of_squares import near_sum, write_products

_ATEN = torch.ops.aten
_CLAMP = _ATEN.clamp.default
_POWER = _ATEN.pow.Tensor_Scalar
_LOG = _ATEN.log.default
_LOG10 = _ATEN.log10.default
#: Functions that never decrease, of a number.
_OF_NUMBER = {_POWER: math.sqrt, _LOG: math.log, _LOG10: math.log10}


def bound_lengths_behind(model: GraphModule) -> None:
    """Write ``sqrt(clamp(y, low, high))`` as ``clamp(sqrt(clamp(y, low)), max=sqrt(high))``.

    y is a sum of squares, more a number and times one. A root never decreases, so that both are equal.

    Args:
        model: a float graph that stock's passes have transformed; changed in place.
    """
    rewrite(model, _write, _POWER)


def bound_logs_behind(model: GraphModule) -> None:
    """Write ``log(clamp(y, low, high))`` as ``clamp(log(clamp(y, low)), max=log(high))``, likewise.

    Args:
        model: a float graph that stock's passes have transformed; changed in place.
    """
    rewrite(model, _write, _LOG, _LOG10)


def _write(node: Node) -> bool:
    """Write one function, and tell whether it is one of a sum of squares with an upper bound."""
    clamp = node.args[0]
    if node.target is _POWER and node.args[1] != 0.5:
        return False
    if not is_call(clamp, _CLAMP):
        return False
    low, high = bounds_of(clamp)
    if not _is_normal(high) or not isinstance(low, (int, float, NoneType)):
        return False
    write_products(clamp)
    value: Any = clamp.args[0]
    if near_sum(value) is None:
        return False
    function: Any = node.target
    write = Writer(node)
    if low is not None:
        value = write(_CLAMP, value, low)
    behind = write(function, value, *node.args[1:])
    highest = _OF_NUMBER[function](high)
    node.replace_all_uses_with(write(_CLAMP, behind, None, highest))
    return True


def _is_normal(number: object) -> TypeGuard[float]:
    """Tell whether a value is a positive number that is a normal float of 32 bits."""
    limits = torch.finfo(torch.float32)
    return isinstance(number, (int, float)) and limits.tiny <= number <= limits.max
