"""A value that arithmetic broadcasts is not expanded first."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.graph_edits import rewrite_all, tensor_of

_ATEN = torch.ops.aten
_EXPAND = _ATEN.expand.default
#: Operators that broadcast what they read, and that stock lowers to TOSA operators that do.
_ARITHMETIC = (
    _ATEN.add.Tensor,
    _ATEN.sub.Tensor,
    _ATEN.mul.Tensor,
    _ATEN.div.Tensor,
)


def broadcast_plainly(model: GraphModule) -> None:
    """Let arithmetic read a value before it was expanded to the shape of the other operand.

    TOSA broadcasts in arithmetic, and an expansion is a TILE, which writes the whole tensor.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_all(model, _skip, _EXPAND)


def _skip(expand: Node) -> None:
    for reader in list(expand.users):
        if _broadcasts(reader, expand):
            reader.replace_input_with(expand, expand.all_input_nodes[0])
    if not expand.users:
        expand.graph.erase_node(expand)


def _broadcasts(reader: Node, expand: Node) -> bool:
    """Return whether a reader's other operand has the shape of an expanded value by itself."""
    if reader.target not in _ARITHMETIC:
        return False
    others = [operand for operand in reader.args[:2] if operand is not expand]
    if len(others) != 1:
        return False
    other = tensor_of(others[0])
    value = tensor_of(expand)
    if other is None or value is None:
        return False
    return _shape(other) == _shape(value)


def _shape(value: Tensor) -> list[str]:
    """Return sizes so that comparing them adds no assumption about a dynamic one."""
    return [str(size) for size in value.shape]
