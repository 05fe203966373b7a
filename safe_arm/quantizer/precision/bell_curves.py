"""The exponential of a negative square reads a product, which is rounded once and where it tells numbers apart.

A square of 8 bits spans all that it reaches, though its exponential is 0 from 9 on: of a bell curve over four times its
width, 15 dB are left, and 32 where the last product has the domain of the exponential.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_float32,
    is_read_once,
    rewrite,
    squared,
    stored_number,
)
from safe_arm.quantizer.precision.exact_products import is_exact_sum
from safe_arm.quantizer.precision.sums_of_squares import number_for, write_products

_ATEN = torch.ops.aten
_EXPONENTIAL = _ATEN.exp.default
_PRODUCT = _ATEN.mul.Tensor
_NEGATION = _ATEN.neg.default


def write_bell_curves(model: GraphModule) -> None:
    """Write ``exp(-x * x / a)`` as ``exp((x * -1 / a) * x)``, and that of a sum of squares as ``exp(sum * -1 / a)``.

    Args:
        model: a float graph that stock's passes have transformed; changed in place.
    """
    rewrite(model, _write, _EXPONENTIAL)


def _write(curve: Node) -> bool:
    """Write one exponential, and tell whether it is that of a negative square."""
    if not is_float32(curve):
        return False
    write = Writer(curve)
    value, factor, has_negation = curve.args[0], 1.0, False
    while is_read_once(value):
        number = _factor(value)
        if number is None:
            break
        has_negation = has_negation or value.target is _NEGATION
        factor *= number
        value = value.args[0]
    if factor >= 0 or not is_read_once(value):
        return False
    write_products(value)
    if is_exact_sum(value) and has_negation:
        exponent = write(_PRODUCT, value, number_for(write, value, factor, "width"))
    else:
        root = squared(value)
        if root is None:
            return False
        scaled = _multiple(write, root, factor)
        exponent = write(_PRODUCT, scaled, root)
    curve.args = (exponent,)
    return True


def _factor(value: Node) -> float | None:
    """Return the number that a value multiplies its first argument by; None if it does something else."""
    if value.target is _NEGATION:
        return -1.0
    if value.target is not _PRODUCT:
        return None
    return stored_number(value.args[1])


def _multiple(write: Writer, value: Node, factor: float) -> Node:
    if factor == -1:
        return write(_NEGATION, value)
    return write(_PRODUCT, value, number_for(write, value, factor, "width"))
