"""Refuse list ops whose elements carry different qparams."""

from __future__ import annotations

from torch.fx import Node

from safe_arm.core.island import QUANTIZE, QParams, is_dequantize, op_name
from safe_arm.partitioner.checks.base import Check, Context, Refusal


class MixedListQParams(Check):
    """Refuses ``cat`` and ``stack`` of tensors in different quantisation domains, unless all are constants.

    The backend keeps one set of qparams per list argument and reads every other element in the first one's
    domain (silently from 1.3 on; 1.2 raises). Constants are folded exactly by our constant folder.
    """

    issue = "S5"
    targets = frozenset(("aten::cat", "aten::stack", "aten::concat", "aten::concatenate"))

    def refuse(self, node: Node, context: Context) -> Refusal | None:
        elements = [e for e in node.args[0] if isinstance(e, Node)]  # type: ignore[union-attr]
        domains = {QParams.of(e) for e in elements if is_dequantize(e)}
        if len(domains) < 2 or all(_is_constant(e, context) for e in elements):
            return None
        dequantizes = tuple(e for e in elements if is_dequantize(e) and set(e.users) == {node})
        quantizes = tuple(u for u in node.users if op_name(u) == QUANTIZE)
        shown = ", ".join(f"scale {q.scale:.6g} zero point {q.zero_point}" for q in domains if q)
        reason = f"the list elements of this {op_name(node).removeprefix('aten::')} carry different qparams: {shown}"
        return Refusal(self.issue, reason, (*dequantizes, node, *quantizes))


def _is_constant(node: Node, context: Context) -> bool:
    if node.op == "placeholder":
        return node.name in context.constants
    return node.op == "call_function" and all(_is_constant(source, context) for source in node.all_input_nodes)
