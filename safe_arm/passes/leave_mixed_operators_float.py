"""Leave operators with quantised and float neighbours float."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm._compat.annotations import unmark_quantized
from safe_arm._compat.upstream import DQ_OPS, Q_OPS, PassResult, is_param_node
from safe_arm.core.island import gives_float, is_marked_quantized
from safe_arm.passes.applied import CorrectiveProgramPass, applied

CODES = frozenset(("codes",))
FLOATS = frozenset(("floats",))
Reads = dict[Node, frozenset[str]]


class LeaveMixedOperatorsFloatPass(CorrectiveProgramPass):
    """Takes Arm's mark off operators that read both codes and floats, or read one of them and give the other.

    The backend folds the DQ and Q nodes of every marked operator into it, whatever its other operands and readers are:
    codes meet floats (S8). Without the mark those nodes stay, and the operator computes in floats, as its graph does. A
    profile without floats then refuses it.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        nodes = [node for node in graph_module.graph.nodes if is_marked_quantized(node)]
        reads: Reads = {}
        mixed = {node for node in nodes if len(self._reads(node, reads)) == 2}
        for node in reversed(nodes):
            for user in node.users if gives_float(node) else ():
                if reads[node] == CODES:
                    is_mixed = user in mixed or _takes_float(user)
                else:
                    is_mixed = reads[node] == FLOATS and user.target in Q_OPS
                if is_mixed:
                    mixed.add(node)
        for node in mixed:
            unmark_quantized(node)
            applied(self, node)
        # Only metadata changed, so nothing is traced again.
        return PassResult(graph_module, bool(mixed))

    def _reads(self, node: Node, reads: Reads) -> frozenset[str]:
        """Return the kinds an operator reads, itself or through others: codes, floats or both; none for constants."""
        if node not in reads:
            kinds: frozenset[str] = frozenset()
            for source in node.all_input_nodes:
                if gives_float(source):
                    kinds |= self._gives(source, reads)
            reads[node] = kinds
        return reads[node]

    def _gives(self, value: Node, reads: Reads) -> frozenset[str]:
        if value.target in DQ_OPS:
            return CODES
        is_constant = value.op == "call_function" and not value.all_input_nodes
        if is_constant or is_param_node(self.exported_program, value):
            return frozenset()
        if not is_marked_quantized(value):
            return FLOATS
        kinds = self._reads(value, reads)
        if len(kinds) == 2:
            return FLOATS
        return kinds


def _takes_float(user: Node) -> bool:
    """Tell whether a reader takes a value as a float: no quantiser, no quantised operator, and none of its size."""
    if user.target in Q_OPS or is_marked_quantized(user):
        return False
    takes_values = isinstance(user.meta.get("val"), (torch.Tensor, list, tuple))
    return takes_values or user.op == "output"
