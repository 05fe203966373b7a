"""Leave out what is lost in a number beyond all others, such as the state of -1e30 with which a maximum begins.

Zeros that are added are lost in any number, such as those of the flat element with which an image is dilated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.constant_values import (
    ConstantValues,
    number_of,
    rewrite_with_constants,
)
from safe_arm.quantizer.graphs.graph_edits import Writer, is_float32, replace_node
from safe_arm.quantizer.graphs.mask_bounds import SMALLEST_FILL

_ATEN = torch.ops.aten
_INVERSE_ROOT = _ATEN.rsqrt.default
#: In a float of 32 bits a number as large as this takes up any other below 2**39.
_FAR = 2.0**64


def leave_out_absorbed(model: GraphModule) -> None:
    """Write the other operand of a maximum for one with a constant below -2**64, and so on.

    ``maximum(x, -1e38)`` and ``minimum(x, 1e38)`` are x, ``-1e38 - x`` is -1e38. Stock gives both operands one scale,
    in which nothing is left of x, and which no rescale reaches. A maximum with any other number is a clamp, whose
    domain ends there. ``x + zeros`` and ``x - zeros`` are x, if an operator computes it.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_with_constants(model, _leave_out)


def _leave_out(node: Node, values: ConstantValues) -> bool:
    rule = _RULES.get(node.target)
    if rule is None or node.kwargs or not is_float32(node):
        return False
    left, right = node.args[:2]
    constants = (values.of(left), values.of(right))
    if None not in constants:
        return False
    for place, value in enumerate(constants):
        if value is None:
            continue
        written = rule(node, place, value)
        if written is None:
            return False
        replace_node(node, _as_wide(node, written))
        return True
    return False


def _is_far(value: Tensor) -> bool:
    """Tell whether all numbers of a constant are far beyond others, on one side."""
    if value.dtype != torch.float32 or not value.numel():
        return False
    return bool((value <= -_FAR).all()) or bool((value >= _FAR).all())


def _of_extreme(
    bound: str, sign: int, node: Node, place: int, value: Tensor
) -> Node | None:
    """Return the operand that is the extreme; one on the near side of a number.

    Args:
        bound: the name of the number as one of a clamp.
        sign: 1 for a maximum, -1 for a minimum.
        node: takes the extreme of two operands.
        place: where the constant one is.
        value: the constant.
    """
    if _is_far(value):
        if sign * value.flatten()[0] < 0:
            place = 1 - place
        return _operand(node, place)
    if any(reader.target is _INVERSE_ROOT for reader in node.users):
        return None  # The bound of a length, which has the domain of its square.
    number = number_of(value)
    operand = _operand(node, 1 - place)
    if number is None or operand is None or sign * number > SMALLEST_FILL:
        return None
    return Writer(node)(_ATEN.clamp.default, operand, **{bound: number})


def _of_sum(node: Node, place: int, value: Tensor) -> Node | None:
    """Return the far number; the other operand of zeros."""
    if _is_far(value):
        return _operand(node, place)
    return _computed(node, 1 - place) if number_of(value) == 0 else None


def _of_difference(node: Node, place: int, value: Tensor) -> Node | None:
    """Return the far number, its negative if it is subtracted; what zeros are subtracted from."""
    if place == 1 and number_of(value) == 0:
        return _computed(node, 0)
    if not _is_far(value):
        return None
    if place == 0:
        return _operand(node, place)
    return Writer(node).constant(-value)


def _operand(node: Node, place: int) -> Node | None:
    operand = node.args[place]
    return operand if isinstance(operand, Node) else None


def _computed(node: Node, place: int) -> Node | None:
    """Return a float operand that an operator gives."""
    operand = _operand(node, place)
    if not is_float32(operand) or operand.op != "call_function":
        return None
    return operand


def _as_wide(node: Node, value: Node) -> Node:
    """Write a value in the sizes of the operator in whose place it stands."""
    shape = node.meta["val"].shape
    if value.meta["val"].shape == shape:
        return value
    sizes = [Writer(node).size(node, dim) for dim in range(len(shape))]
    return Writer(node)(_ATEN.expand.default, value, sizes)


_RULES: dict[Any, Callable[[Node, int, Tensor], Node | None]] = {
    _ATEN.maximum.default: partial(_of_extreme, "min", 1),
    _ATEN.minimum.default: partial(_of_extreme, "max", -1),
    _ATEN.add.Tensor: _of_sum,
    _ATEN.sub.Tensor: _of_difference,
}
