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

#: ``node.meta`` key: for each index of a list argument, the qparams of each element, None for one not dequantised.
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
            noted: dict[int, list[QuantArgs | None]] = {}
            for index, arg in enumerate(node.args):
                if isinstance(arg, (list, tuple)):
                    qparams = list(map(_qparams, arg))
                    if len(set(qparams)) > 1:
                        noted[index] = qparams
            if noted and node.op == "call_function":
                node.meta[ELEMENT_QPARAMS] = noted
                modified = True
        return PassResult(graph_module, modified)


def _qparams(element: object) -> QuantArgs | None:
    if not isinstance(element, Node) or element.target not in DQ_OPS:
        return None
    if any(isinstance(arg, Node) for arg in element.args[1:]):
        return None
    return QuantArgs.from_operator(element.target, element.args)
