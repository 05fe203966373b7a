"""Operators that stay undecomposed for the accelerator; stock also keeps some that it later refuses."""

from __future__ import annotations

from torch.fx import Node

from safe_arm.core.island import (
    DECOMPOSED_LINEAR,
    is_marked_quantized,
    island_of,
    op_name,
)
from safe_arm.core.written import exported_operator
from safe_arm.partitioner.checks import Policy

#: Activations that lower whole only where they are quantised; stock keeps them whole between quantised neighbours too.
_TABLES = ("aten::hardsigmoid", "aten::hardswish", "aten::silu")


def kept_whole(node: Node, policy: Policy) -> bool | None:
    """Tell whether an operator stays whole; None where that is stock's to decide.

    Args:
        node: the operator, before the decomposition.
        policy: how non-fuseable islands are treated.
    """
    if op_name(node) in _TABLES and not is_marked_quantized(node):
        return False
    if op_name(node) != "aten::linear" or len(node.users) != 1:
        return None
    island = island_of(next(iter(node.users)))
    if island is None:
        return None
    return island.fuseable or policy != "reject"


def was_taken_apart(node: Node) -> bool:
    """Tell whether an operator is part of one that is quantised as a whole, and has no domains inside.

    ``to_edge`` asks no partitioner what stays whole, nor does ``run_decompositions``.

    Args:
        node: the operator, in an edge program.
    """
    name, whole = op_name(node), exported_operator(node)
    if name == whole or not is_marked_quantized(node):
        return False
    return whole in _TABLES or (whole == "aten::linear" and name in DECOMPOSED_LINEAR)
