"""Squares that are averaged are products that the sum reads as they are, so that both stay exact in 32 bits."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import op_name
from safe_arm.core.operators import RESHAPES
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_call,
    is_float32,
    is_read_once,
    operands_of,
    rewrite,
    squared,
    static_sizes,
    stored_number,
)
from safe_arm.quantizer.precision.exact_products import fits_exactly
from safe_arm.quantizer.precision.sums_of_squares import number_for, replace_in_shape

_ATEN = torch.ops.aten
_POWER = _ATEN.pow.Tensor_Scalar
_PRODUCT = _ATEN.mul.Tensor
_SUM = _ATEN.sum.dim_IntList
_SUM_OF_ALL = _ATEN.sum.default
_ROOT = _ATEN.rsqrt.default
#: Operators between a sum of squares and the inverse root of a norm, beside reshapes.
_ON_THE_WAY = (
    _PRODUCT,
    _ATEN.add.Tensor,
    _ATEN.clamp.default,
    _ATEN.maximum.default,
)


def write_mean_squares(model: GraphModule) -> None:
    """Write the sums of ``x ** 2``, and of squares that are reshaped, as sums of ``x * x``.

    Stock gives a power a table, and reshapes to rank 4 what it takes a mean of: each square is rounded to 8 bits before
    it is added, and those of small values are 0. Norms are left alone, which an Ethos-U85 would take longer for.

    Args:
        model: a float graph that stock's passes have transformed; changed in place.
    """
    rewrite(model, _write, _SUM, _SUM_OF_ALL)


def _write(total: Node) -> bool:
    """Write one sum, and tell whether it is one of squares."""
    square = total.args[0]
    is_plain = total.target is _SUM and squared(square) is not None
    if is_plain or not fits_exactly(total):
        return False
    if is_read_once(square) and op_name(square) in RESHAPES:
        square = square.args[0]
    value = square_read_once(square)
    if not is_float32(value) or not total.users or _is_of_norm(total):
        return False
    dims = _dims_of_value(total, value)
    if dims is None:
        return False
    write = Writer(total)
    _replace(total, write(_SUM, write(_PRODUCT, value, value), dims, True))
    return True


def square_read_once(square: object) -> Node | None:
    """Return what a value that is read once is the square of; None if it is none."""
    if not is_read_once(square):
        return None
    value, exponent = operands_of(square, _POWER)
    if exponent == 2 and isinstance(value, Node):
        return value
    return squared(square)


def _is_of_norm(total: Node) -> bool:
    """Tell whether an inverse root is computed of a sum."""
    waiting = [total]
    while waiting:
        for reader in waiting.pop().users:
            if reader.target is _ROOT:
                return True
            if reader.target in _ON_THE_WAY or op_name(reader) in RESHAPES:
                waiting.append(reader)
    return False


def _dims_of_value(total: Node, value: Node) -> list[int] | None:
    """Return the dimensions of a value that its squares are summed over; None if they have been reshaped otherwise."""
    sizes, summed = static_sizes(value), static_sizes(total.args[0])
    if not sizes or summed is None:
        return None
    added = len(summed) - len(sizes)
    if added < 0 or summed != [1] * added + sizes:
        return None
    dims: Any = (*total.args, None)[1]
    own = [dim % len(summed) - added for dim in dims or range(len(summed))]
    return [dim for dim in own if dim >= 0]


def _replace(total: Node, plain: Node) -> None:
    """Let what reads a sum read another in its shape; its product with a number is taken before that."""
    readers = list(total.users)
    if len(readers) == 1 and is_call(readers[0], _PRODUCT):
        mean = readers[0]
        number = stored_number(mean.args[1])
        if number is not None and mean.args[0] is total:
            write = Writer(mean)
            factor = number_for(write, plain, number, "factor")
            replace_in_shape(write, mean, write(_PRODUCT, plain, factor))
            return
    replace_in_shape(Writer(total), total, plain)
