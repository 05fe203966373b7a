"""Refuse a quantiser or dequantiser of uint8 that has floats on its other side."""

from __future__ import annotations

import torch
from torch.fx import Node

from safe_arm.core.island import DEQUANTIZE, QUANTIZE, QParams, is_dequantize, op_name
from safe_arm.partitioner.checks.base import Check, Context, Refusal


class UnsignedAtFloat(Check):
    """Refuses what turns floats into uint8 or back; between integers, a RESCALE does it.

    TOSA has uint8 in RESCALE alone. In a profile with FP the backend still takes such a quantiser into the delegate,
    and casts to int8: everything above code 127 is lost.
    """

    issue = "U1"
    targets = frozenset((QUANTIZE, DEQUANTIZE[0]))

    def refuse(self, node: Node, context: Context) -> Refusal | None:
        q = QParams.of(node)
        if q is None or q.dtype != torch.uint8:
            return None
        if is_dequantize(node):
            integers = {op_name(user) for user in node.users} == {QUANTIZE}
        else:
            source = node.args[0]
            integers = isinstance(source, Node) and is_dequantize(source)
        if integers:
            return None
        return Refusal(
            self.issue, "it turns floats into uint8 or back, which TOSA cannot", (node,)
        )
