"""Refuse functions with poles that would be read from a 16-bit table."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.island import QUANTIZE, QParams, is_dequantize, op_name
from safe_arm.partitioner.checks.base import Check, Context, Refusal
from safe_arm.verification.tables import STEP, at_entries

#: Two entries that are farther apart have no line between them: TOSA 1.0 wants its slope in 16 bits.
_STEEPEST = 2**15 - 1


class PolesOfInt16(Check):
    """Refuses functions of int16 that go from one end to the other between two entries of a table, as 1/x does at 0.

    What TOSA gives there is not defined. It does not matter where the input never comes: the sum of exponentials that
    a softmax divides by is positive.
    """

    issue = "T22"
    targets = frozenset(
        (
            "aten::reciprocal",
            "aten::pow",
            "aten::log",
            "aten::log10",
            "aten::log1p",
            "aten::rsqrt",
        )
    )

    def refuse(self, node: Node, context: Context) -> Refusal | None:
        source, quantizes = node.args[0], tuple(node.users)
        q = (
            QParams.of(source)
            if isinstance(source, Node) and is_dequantize(source)
            else None
        )
        if (
            q is None
            or q.dtype != torch.int16
            or [op_name(user) for user in quantizes] != [QUANTIZE]
        ):
            return None
        assert isinstance(source, Node)  # mypy
        entries = at_entries(source.all_input_nodes[0], (source, node, quantizes[0]))
        low, high = context.ranges.of(source.args[0])
        for first in (
            () if entries is None else _undefined(entries.unrounded[quantizes[0]])
        ):
            if low < first + STEP and high >= first:
                dequantizes = (source,) if set(source.users) == {node} else ()
                name = op_name(node).removeprefix("aten::")
                values = " to ".join(
                    f"{(code - q.zero_point) * q.scale:.3g}"
                    for code in (first, first + STEP)
                )
                reason = f"{name} of int16 would be read from a table of 513 codes, which is undefined from {values}"
                return Refusal(self.issue, reason, (*dequantizes, node, *quantizes))
        return None


def _undefined(entries: Tensor) -> list[int]:
    """Return from which codes of the input on an entry and the next are too far apart."""
    known = entries.nan_to_num(0.0).clamp(-(2**15), 2**15 - 1).round()
    steep = known.diff().abs().gt(_STEEPEST) & ~(
        entries[1:].isnan() | entries[:-1].isnan()
    )
    return [place * STEP - 2**15 for place in steep.nonzero().flatten().tolist()]
