"""Refuse functions with poles that would be read from a 16-bit table."""

from __future__ import annotations

from torch import Tensor
from torch.fx import Node

from safe_arm.core.int16_tables import STEP, tables_of
from safe_arm.core.island import QUANTIZE, op_name
from safe_arm.partitioner.checks.base import (
    Check,
    Context,
    Refusal,
    int16_input,
    unit_of,
)
from safe_arm.verification.tables import at_all_codes

#: Two entries that are farther apart have no line between them: TOSA 1.0 wants its slope in 16 bits.
_STEEPEST = 2**15 - 1


class PolesOfInt16(Check):
    """Refuses functions of int16 that go from one end to the other between two entries of a table, as 1/x does at 0.

    TOSA does not define the values there. That does not matter where the input never comes, as the sum of exponentials
    that a softmax divides by, which is positive; nor where finer tables have each code (passes/insert_table_ops.py).
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
            "aten::tan",
        )
    )

    def refuse(self, node: Node, context: Context) -> Refusal | None:
        int16 = int16_input(node)
        users = list(node.users)
        if int16 is None:
            return None
        if len(users) != 1 or op_name(users[0]) != QUANTIZE:
            return None
        source, q = int16
        evaluated = at_all_codes(source.all_input_nodes[0], (source, node, users[0]))
        if evaluated is None:
            return None
        function = evaluated.unrounded[users[0]]
        if tables_of(function):
            return None
        low, high = context.ranges.of(source.args[0])
        for first in _undefined(function[::STEP]):
            last = first + STEP
            if low < last and high >= first:
                name = op_name(node).removeprefix("aten::")
                start, end = ((code - q.zero_point) * q.scale for code in (first, last))
                values = f"{start:.3g} to {end:.3g}"
                reason = f"{name} of int16 would be read from a table of 513 codes, which is undefined from {values}"
                return Refusal(self.issue, reason, unit_of(node))
        return None


def _undefined(entries: Tensor) -> list[int]:
    """Return the codes of the input at whose entry the table starts a step that is too steep."""
    values = entries.nan_to_num(0.0).clamp(-(2**15), 2**15 - 1).round()
    no_value = entries[1:].isnan() | entries[:-1].isnan()
    steep = values.diff().abs().gt(_STEEPEST) & ~no_value
    return [place * STEP - 2**15 for place in steep.nonzero().flatten().tolist()]
