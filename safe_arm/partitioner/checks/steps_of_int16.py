"""Refuse functions with steps that would be read from a 16-bit table."""

from __future__ import annotations

from torch.fx import Node

from safe_arm.core.island import op_name
from safe_arm.partitioner.checks.base import (
    Check,
    Context,
    Refusal,
    int16_input,
    unit_of,
)


class StepsOfInt16(Check):
    """Refuses ``floor``, ``ceil`` and ``round`` of int16.

    TOSA keeps 513 codes of a 16-bit function and interpolates between them: a step becomes a ramp of 128 codes of the
    input. An int8 has a table entry for every code.
    """

    issue = "T2"
    targets = frozenset(("aten::floor", "aten::ceil", "aten::round"))

    def refuse(self, node: Node, context: Context) -> Refusal | None:
        if int16_input(node) is None:
            return None
        name = op_name(node).removeprefix("aten::")
        reason = f"{name} of int16 would be read from a table of 513 codes, which interpolates its steps"
        return Refusal(self.issue, reason, unit_of(node))
