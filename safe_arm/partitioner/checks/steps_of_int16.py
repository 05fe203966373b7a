"""Refuse functions with steps that would be read from a 16-bit table."""

from __future__ import annotations

import torch
from torch.fx import Node

from safe_arm.core.island import QUANTIZE, QParams, is_dequantize, op_name
from safe_arm.partitioner.checks.base import Check, Context, Refusal


class StepsOfInt16(Check):
    """Refuses ``floor``, ``ceil`` and ``round`` of int16.

    TOSA keeps 513 codes of a 16-bit function and interpolates between them: a step becomes a ramp of 128 codes of the
    input. An int8 has a table entry for every code.
    """

    issue = "T2"
    targets = frozenset(("aten::floor", "aten::ceil", "aten::round"))

    def refuse(self, node: Node, context: Context) -> Refusal | None:
        source = node.args[0]
        q = (
            QParams.of(source)
            if isinstance(source, Node) and is_dequantize(source)
            else None
        )
        if q is None or q.dtype != torch.int16:
            return None
        dequantizes = (
            (source,)
            if isinstance(source, Node) and set(source.users) == {node}
            else ()
        )
        quantizes = tuple(user for user in node.users if op_name(user) == QUANTIZE)
        name = op_name(node).removeprefix("aten::")
        reason = f"{name} of int16 would be read from a table of 513 codes, which interpolates its steps"
        return Refusal(self.issue, reason, (*dequantizes, node, *quantizes))
