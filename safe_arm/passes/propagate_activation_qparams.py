"""Copy an activation's output qparams onto the conv it clamps."""

from __future__ import annotations

from typing import ClassVar

from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import ArmPass, PassResult
from safe_arm.core.island import CONV_LIKE, PASS_THROUGH, op_name
from safe_arm.passes.applied import applied

#: Name of this rule in ``node.meta["safe_arm"]`` of the nodes it touched.
RULE = "propagate-activation-qparams"


class PropagateActivationQParamsPass(ArmPass):
    """Gives a conv-like node the output qparams of the clamp that survived behind it, and the clamp the same as input.

    The quantiser puts output qparams on the activation, not on the conv. With them on both, the conv's RESCALE lands
    in the activation's domain and the clamp works on codes: rescale, saturate and clamp are monotone, so the result
    is ``quantize(clamp(conv))`` code for code. Runs directly after FoldAndAnnotateQParamsPass, before linear, grouped
    and 1-d convolutions are taken apart; also reaches through views, squeezes and per-group cats already there.
    """

    _passes_required_after: ClassVar[set[type]] = set()

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        for clamp in graph_module.graph.nodes:
            qparams = clamp.meta.get("output_qparams")
            if (
                op_name(clamp) != "aten::clamp"
                or not qparams
                or clamp.meta.get("input_qparams")
            ):
                continue
            producers = _unquantized_producers(clamp.args[0])
            if not producers:
                continue
            domain = next(iter(qparams.values()))
            for node in producers:
                node.meta["output_qparams"] = {0: domain}
                node.meta["safe_arm"] = RULE
                if op_name(node) not in CONV_LIKE:
                    node.meta["input_qparams"] = {0: domain}
            clamp.meta["input_qparams"] = {0: domain}
            clamp.meta["safe_arm"] = RULE
            for node in (*producers, clamp):
                applied(self, node)
            modified = True
        # Only metadata changed, so nothing is traced again.
        return PassResult(graph_module, modified)


def _unquantized_producers(node: object) -> list[Node]:
    """Return the conv-like nodes behind a clamp and what stands between, or nothing if any other op produces it."""
    if (
        not isinstance(node, Node)
        or len(node.users) != 1
        or node.meta.get("output_qparams")
    ):
        return []
    if op_name(node) in CONV_LIKE:
        return [node] if node.meta.get("input_qparams") else []
    if op_name(node) in PASS_THROUGH:
        producers = _unquantized_producers(node.args[0])
        return [*producers, node] if producers else []
    if op_name(node) == "aten::cat":
        parts = [_unquantized_producers(part) for part in node.args[0]]  # type: ignore[union-attr]
        return [*(n for part in parts for n in part), node] if all(parts) else []
    return []
