"""A choice between a value and the same value is the value."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    replace_node,
    rewrite_all,
    tensor_of,
)

_ATEN = torch.ops.aten


def drop_equal_choices(model: GraphModule) -> None:
    """Write ``where(condition, x, x)`` as x in the sizes of both; stock counts two inputs where a choice has three.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_all(model, _drop, _ATEN.where.self)


def _drop(node: Node) -> bool:
    value = node.args[1]
    before, after = tensor_of(value), tensor_of(node)
    if value is not node.args[2] or before is None or after is None:
        return False
    assert isinstance(value, Node)
    if before.shape != after.shape:
        write = Writer(node)
        sizes = [write.size(node, dim) for dim in range(after.dim())]
        value = write(_ATEN.expand.default, value, sizes)
    replace_node(node, value)
    return True
