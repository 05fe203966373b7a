"""Refuse what reads an int64 buffer that the net writes, such as a counter."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.partitioner.checks.base import Check, Context, Refusal


class WrittenInt64(Check):
    """Refuses what reads a buffer of int64 that changes, which TOSA has no type for.

    The backend takes every buffer for a constant, whose type it narrows, and then fails at the delegate's input.
    """

    issue = "T73"
    targets = frozenset()

    def refuse(self, node: Node, context: Context) -> Refusal | None:
        for source in node.all_input_nodes:
            value = source.meta.get("val")
            is_int64 = isinstance(value, Tensor) and value.dtype == torch.int64
            if is_int64 and source.name in context.written:
                name = source.name.removeprefix("b_")
                reason = f"its input {name} is int64 and not constant"
                return Refusal(self.issue, reason, (node,))
        return None
