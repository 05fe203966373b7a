"""Arithmetic of floats reads a whole number as the float that it was before it became an index.

In ``i = p.floor().long()`` and ``p - i`` the difference casts the index back, on the CPU in INT.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Argument

from safe_arm.quantizer.graphs.graph_edits import (
    is_call,
    is_float32,
    rewrite_nodes,
)

_ATEN = torch.ops.aten
_CAST = _ATEN.to.dtype
#: Arithmetic that takes a zero below zero as it takes any zero.
_ARITHMETIC = (
    _ATEN.add.Tensor,
    _ATEN.sub.Tensor,
    _ATEN.mul.Tensor,
)
_WHOLE = (
    _ATEN.floor.default,
    _ATEN.ceil.default,
    _ATEN.round.default,
    _ATEN.trunc.default,
)
_INTEGERS = (torch.int32, torch.int64)


def read_whole_operands(model: GraphModule) -> None:
    """Let sums, differences and products of floats read whole numbers before their cast to integers.

    Args:
        model: a float graph before annotation, the branches of its control flow not included; changed in place.
    """
    rewrite_nodes(model, _read_floats)


def _read_floats(node: Node) -> bool:
    """Give one operator floats in place of integers, and tell whether it got some."""
    if node.target not in _ARITHMETIC or not is_float32(node):
        return False
    is_changed = False
    for operand in list(node.all_input_nodes):
        whole = _before_cast(operand)
        if whole is not None:
            node.replace_input_with(operand, whole)
            is_changed = True
    return is_changed


def _before_cast(operand: Node) -> Node | None:
    """Return the float of a whole number that was cast to an integer; None for any other value."""
    if not is_call(operand, _CAST):
        return None
    source, dtype = operand.args[:2]
    assert isinstance(source, Node)
    if dtype not in _INTEGERS or not is_float32(source):
        return None
    if _is_whole(source):
        return source
    return None


def _is_whole(value: Argument) -> bool:
    """Tell whether a value is a whole number, or one between whole numbers."""
    if not isinstance(value, Node):
        return False
    if is_call(value, _ATEN.clamp.default):
        limits = value.args[1:]
        if any(isinstance(limit, float) and limit % 1 for limit in limits):
            return False
        return not value.kwargs and _is_whole(value.args[0])
    return value.target in _WHOLE
