"""Copy an activation's output qparams onto the conv it clamps."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import PassResult
from safe_arm.core.island import CONV_LIKE, op_name
from safe_arm.core.operators import VIEWS
from safe_arm.passes.applied import CorrectivePass, applied
from safe_arm.passes.invariants.domains import input_qparams, output_qparams


class PropagateActivationQParamsPass(CorrectivePass):
    """Gives a conv-like node the output qparams of the clamp that survived behind it, and the clamp the same as input.

    The quantiser puts output qparams on the activation, not on the conv. With them on both, the conv's RESCALE lands
    in the activation's domain and the clamp works on codes: rescale, saturate and clamp are monotone, so the result
    is ``quantize(clamp(conv))`` code for code. The pass runs directly after FoldAndAnnotateQParamsPass, before linear,
    grouped and 1-d convolutions are decomposed. It also reaches through views, squeezes and per-group cats.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        for clamp in graph_module.graph.nodes:
            domain = output_qparams(clamp)
            if op_name(clamp) != "aten::clamp" or domain is None:
                continue
            if input_qparams(clamp):
                continue
            producers = _unquantized_producers(clamp.args[0])
            if not producers:
                continue
            for node in producers:
                node.meta["output_qparams"] = {0: domain}
                if op_name(node) not in CONV_LIKE:
                    node.meta["input_qparams"] = {0: domain}
            clamp.meta["input_qparams"] = {0: domain}
            for node in (*producers, clamp):
                applied(self, node)
            modified = True
        # Only metadata changed, so nothing is traced again.
        return PassResult(graph_module, modified)


def _unquantized_producers(node: object) -> list[Node]:
    """Return the conv-like nodes before a clamp and those between, or nothing if any other op produces its input."""
    if not isinstance(node, Node) or len(node.users) != 1:
        return []
    if output_qparams(node) is not None:
        return []
    name = op_name(node)
    if name in CONV_LIKE:
        if input_qparams(node):
            return [node]
        return []
    sources: Any = ()
    if name in VIEWS:
        sources = node.args[:1]
    elif name == "aten::cat":
        sources = node.args[0]
    producers: list[Node] = []
    for source in sources:
        before = _unquantized_producers(source)
        if not before:
            return []
        producers += before
    if producers:
        return [*producers, node]
    return []
