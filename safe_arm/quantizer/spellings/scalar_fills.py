"""A number that ``where`` fills in is a tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.domains.filled_readers import readers_of_fill
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_float32,
    replace_node,
    rewrite_all,
)

_WHERE = torch.ops.aten.where
#: The place of the number in each spelling.
_NUMBERS: dict[Any, int] = {_WHERE.ScalarSelf: 1, _WHERE.ScalarOther: 2}
#: A larger number is there to mask; in a domain that reaches it no other value has codes. A maximum has no need of it.
_LARGEST = 100


def fill_from_tensors(model: GraphModule) -> None:
    """Write ``where(condition, x, 0.0)`` with a tensor in the place of the number.

    Stock annotates ``where`` of two tensors only, so that the other spellings stay float and cut the delegate in two.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_all(model, _fill, *_NUMBERS)


def _fill(node: Node) -> None:
    place = _NUMBERS[node.target]
    number = node.args[place]
    if not is_float32(node):
        return
    if not isinstance(number, (int, float)) or node.kwargs:
        return
    if not abs(number) <= _LARGEST and not readers_of_fill(node, number):
        return
    write = Writer(node)
    operands = list(node.args)
    operands[place] = write.constant(torch.tensor(float(number)))
    filled = write(_WHERE.self, *operands)
    replace_node(node, filled)
