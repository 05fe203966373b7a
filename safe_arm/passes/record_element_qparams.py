"""Remember each list element's own qparams before the stock fold keeps only the first."""

from __future__ import annotations

from typing import ClassVar

from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import (
    DQ_OPS,
    ArmPass,
    FoldAndAnnotateQParamsPass,
    PassResult,
    QuantArgs,
)

#: ``node.meta`` key: {argument index: qparams of each list element, None where an element is not dequantised}.
ELEMENT_QPARAMS = "safe_arm_element_qparams"


class RecordElementQParamsPass(ArmPass):
    """Notes the qparams of every element of a list argument whose elements do not share one domain.

    FoldAndAnnotateQParamsPass has room for one entry per argument and, from 1.3 on, silently keeps the first
    (``_merge_qparams``). The constant folder reads the note.
    """

    _passes_required_after: ClassVar[set[type]] = {FoldAndAnnotateQParamsPass}

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        for node in graph_module.graph.nodes:
            noted = {
                index: qparams
                for index, arg in enumerate(node.args)
                if isinstance(arg, (list, tuple))
                and len(set(qparams := [_qparams(e) for e in arg])) > 1
            }
            if node.op == "call_function" and any(any(q) for q in noted.values()):
                node.meta[ELEMENT_QPARAMS] = noted
                modified = True
        return PassResult(graph_module, modified)


def _qparams(element: object) -> QuantArgs | None:
    if (
        not isinstance(element, Node)
        or element.target not in DQ_OPS
        or any(isinstance(a, Node) for a in element.args[1:])
    ):
        return None
    return QuantArgs.from_operator(element.target, element.args)
