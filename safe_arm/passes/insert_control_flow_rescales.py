"""Rescale each operand of a condition or a loop from its own domain."""

from __future__ import annotations

from torch.fx import Node

from safe_arm._compat import upstream
from safe_arm._compat.upstream import QuantArgs
from safe_arm.passes.applied import applied
from safe_arm.passes.record_element_qparams import ELEMENT_QPARAMS


class InsertControlFlowRescalesPass(upstream.InsertControlFlowRescalesPass):
    """Takes the place of the stock pass of this name.

    The stock pass takes the domain of the first operand for all of them: a branch reads the codes of the others in a
    domain that they are not in (S52).
    """

    def _get_input_qparams_map(
        self, node: Node, idx: int
    ) -> dict[int, QuantArgs] | None:
        qparams: dict[int, QuantArgs] | None = super()._get_input_qparams_map(node, idx)
        elements = node.meta.get(ELEMENT_QPARAMS, {}).get(idx)
        if qparams is None or elements is None:
            return qparams
        applied(self, node)
        return {index: each for index, each in enumerate(elements) if each is not None}
