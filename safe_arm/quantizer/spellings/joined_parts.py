"""A part that lies in one operand of a concatenation is read from that operand."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_call,
    replace_node,
    rewrite_all,
)
from safe_arm.quantizer.graphs.views_written import part_of

_ATEN = torch.ops.aten
_SLICE = _ATEN.slice.Tensor


def read_joined_parts(model: GraphModule) -> None:
    """Write a slice of a concatenation as one of the operand that it lies in, which may have a smaller domain.

    A head that decodes its boxes in place writes pixels beside numbers between 0 and 1, and reads of the result more
    numbers to decode.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_all(model, _read_operand, _SLICE, _ATEN.select.int)


def _read_operand(node: Node) -> bool:
    target: Any = node.target
    joined = node.args[0]
    if not is_call(joined, _ATEN.cat.default):
        return False
    sizes = joined.meta["val"].shape
    part = part_of(node, None, sizes)
    operands: Any = joined.args[0]
    joined_dim: Any = (*joined.args, 0)[1]
    if part is None or part[0] != joined_dim % len(sizes):
        return False
    dim, start, end = part
    for operand in operands:
        size = operand.meta["val"].shape[dim]
        if start >= 0 and end <= size:
            places = (start, end) if target is _SLICE else (start,)
            written = Writer(node)(target, operand, dim, *places)
            replace_node(node, written)
            _read_operand(written)
            return True
        start, end = start - size, end - size
    return False
