"""Leave operators float that have quantised and float neighbours."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import DQ_OPS, Q_OPS, ArmPass, PassResult, is_param_node
from safe_arm.core.island import MARK_KEY, is_marked_quantized
from safe_arm.passes.applied import applied

#: Name of this rule in ``node.meta["safe_arm"]`` of the nodes it touched.
RULE = "leave-mixed-operators-float"
CODES, FLOATS = frozenset(("codes",)), frozenset(("floats",))
Reads = dict[Node, frozenset[str]]


class LeaveMixedOperatorsFloatPass(ArmPass):
    """Takes Arm's mark off operators that read codes and floats, or read the one and give the other.

    The backend folds the DQ and Q nodes of every marked operator into it, whatever its other operands and readers are:
    codes meet floats (S8). Without the mark those nodes stay, and the operator computes in floats, as its graph says. A
    profile without floats refuses it then.
    """

    _passes_required_after: ClassVar[set[type]] = set()

    def __init__(self, exported_program: ExportedProgram) -> None:
        super().__init__()
        self.exported_program = exported_program

    def call(self, graph_module: GraphModule) -> PassResult:
        nodes = [node for node in graph_module.graph.nodes if is_marked_quantized(node)]
        reads: Reads = {}
        mixed = {node for node in nodes if len(self._reads(node, reads)) == 2}
        for node in reversed(nodes):
            readers = node.users if _is_float(node) else ()
            if (
                reads[node] == CODES
                and any(user in mixed or _takes_float(user) for user in readers)
            ) or (
                reads[node] == FLOATS and any(user.target in Q_OPS for user in readers)
            ):
                mixed.add(node)
        for node in mixed:
            node.meta["custom"] = {
                key: value
                for key, value in node.meta["custom"].items()
                if key != MARK_KEY
            }
            node.meta["safe_arm"] = RULE
            applied(self, node)
        # Only metadata changed, so nothing is traced again.
        return PassResult(graph_module, bool(mixed))

    def _reads(self, node: Node, reads: Reads) -> frozenset[str]:
        """Return what an operator reads, itself or through others: codes, floats, both; of constants alone nothing."""
        if node not in reads:
            operands = [
                self._gives(source, reads)
                for source in node.all_input_nodes
                if _is_float(source)
            ]
            reads[node] = frozenset().union(*operands)
        return reads[node]

    def _gives(self, value: Node, reads: Reads) -> frozenset[str]:
        if value.target in DQ_OPS:
            return CODES
        if is_param_node(self.exported_program, value) or (
            value.op == "call_function" and not value.all_input_nodes
        ):
            return frozenset()
        if not is_marked_quantized(value):
            return FLOATS
        return FLOATS if len(given := self._reads(value, reads)) == 2 else given


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _takes_float(user: Node) -> bool:
    """Whether a reader takes a value as a float: neither a quantiser nor a quantised operator, nor one of its size."""
    if user.target in Q_OPS or is_marked_quantized(user):
        return False
    return user.op == "output" or isinstance(
        user.meta.get("val"), (torch.Tensor, list, tuple)
    )
