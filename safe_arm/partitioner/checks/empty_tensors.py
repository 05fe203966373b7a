"""Refuse operators that read or return tensors without elements."""

from __future__ import annotations

import operator

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from safe_arm.core.island import QUANTIZE, is_dequantize, op_name
from safe_arm.partitioner.checks.base import Check, Context, Refusal


class EmptyTensors(Check):
    """Refuses what has a tensor of no elements: in TOSA every size is at least 1."""

    issue = "E1"
    targets = frozenset()

    def refuse(self, node: Node, context: Context) -> Refusal | None:
        empty = next((n for n in (*node.all_input_nodes, node) if _is_empty(n)), None)
        if empty is None:
            return None
        dequantizes = tuple(n for n in node.all_input_nodes if is_dequantize(n) and set(n.users) == {node})
        quantizes = tuple(user for user in node.users if op_name(user) == QUANTIZE)
        reason = f"{empty.name} has no elements, and in TOSA every size is at least 1"
        return Refusal(self.issue, reason, (*dequantizes, node, *quantizes))


def _is_empty(node: Node) -> bool:
    """Tell whether a node's value, or one of several that is read, has a size that is 0 and not dynamic.

    A batch norm returns two empty tensors besides its value, which nobody reads.
    """
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        value = [value[user.args[1]] for user in node.users if user.target is operator.getitem]  # type: ignore[index]
    tensors = (each for each in tree_leaves(value) if isinstance(each, torch.Tensor))
    return any(isinstance(size, int) and size == 0 for tensor in tensors for size in tensor.shape)
