"""Refuse operators that read or return tensors without elements, or that may have none."""

from __future__ import annotations

import operator

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._pytree import tree_leaves

from safe_arm.partitioner.checks.base import Check, Context, Refusal, unit_of


class EmptyTensors(Check):
    """Refuses what has a tensor of no elements: in TOSA every size is at least 1."""

    issue = "E1"
    targets = frozenset()

    def refuse(self, node: Node, context: Context) -> Refusal | None:
        for value in (*node.all_input_nodes, node):
            suspects = [size for size in _sizes(value) if _can_be_0(size)]
            if suspects:
                is_static = any(isinstance(size, int) for size in suspects)
                has = "has" if is_static else "may have"
                reason = f"{value.name} {has} no elements, and in TOSA every size is at least 1"
                return Refusal(self.issue, reason, unit_of(node))
        return None


def _sizes(node: Node) -> list[int | torch.SymInt]:
    """Return the sizes of a node's value; if it has several values, of those that are read.

    A batch norm returns two empty tensors besides its value, which nobody reads.
    """
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        getitems = [user for user in node.users if user.target is operator.getitem]
        value = [value[user.args[1]] for user in getitems]  # type: ignore[index]
    sizes: list[int | torch.SymInt] = []
    for tensor in tree_leaves(value):
        if isinstance(tensor, torch.Tensor):
            sizes += tensor.shape
    return sizes


def _can_be_0(size: int | torch.SymInt) -> bool:
    """Tell whether a size is 0, or may be for some data: a mask leaves any number of elements.

    A dynamic size of an input is what the user says.
    """
    if isinstance(size, int):
        return size == 0
    if not free_unbacked_symbols(size):
        return False
    return not size.node.shape_env.bound_sympy(size.node.expr).lower > 0
