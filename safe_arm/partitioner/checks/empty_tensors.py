"""Refuse operators that read or return tensors without elements, or that may have none."""

from __future__ import annotations

import operator

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._pytree import tree_leaves

from safe_arm.core.island import QUANTIZE, is_dequantize, op_name
from safe_arm.partitioner.checks.base import Check, Context, Refusal


class EmptyTensors(Check):
    """Refuses what has a tensor of no elements: in TOSA every size is at least 1."""

    issue = "E1"
    targets = frozenset()

    def refuse(self, node: Node, context: Context) -> Refusal | None:
        empty = next(
            (
                n
                for n in (*node.all_input_nodes, node)
                if any(map(_can_be_0, _sizes(n)))
            ),
            None,
        )
        if empty is None:
            return None
        dequantizes = tuple(
            n
            for n in node.all_input_nodes
            if is_dequantize(n) and set(n.users) == {node}
        )
        quantizes = tuple(user for user in node.users if op_name(user) == QUANTIZE)
        known = any(isinstance(size, int) and size == 0 for size in _sizes(empty))
        reason = f"{empty.name} {'has' if known else 'may have'} no elements, and in TOSA every size is at least 1"
        return Refusal(self.issue, reason, (*dequantizes, node, *quantizes))


def _sizes(node: Node) -> list[int | torch.SymInt]:
    """Return the sizes of a node's value, or of those that are read of several.

    A batch norm returns two empty tensors besides its value, which nobody reads.
    """
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        getitems = [user for user in node.users if user.target is operator.getitem]
        value = [value[user.args[1]] for user in getitems]  # type: ignore[index]
    return [
        size
        for each in tree_leaves(value)
        if isinstance(each, torch.Tensor)
        for size in each.shape
    ]


def _can_be_0(size: int | torch.SymInt) -> bool:
    """Tell whether a size is 0, or may be for what the data are: a mask leaves as many elements as it likes.

    A dynamic size of an input is what the user says.
    """
    if isinstance(size, int):
        return size == 0
    return (
        bool(free_unbacked_symbols(size))
        and not size.node.shape_env.bound_sympy(size.node.expr).lower > 0
    )
