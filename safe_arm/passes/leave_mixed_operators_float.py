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


class LeaveMixedOperatorsFloatPass(ArmPass):
    """Takes Arm's mark off operators that read codes and floats, or read codes and give floats.

    The backend folds the DQ nodes of every marked operator into it, whatever its other operands and readers are: codes
    meet floats (S8). Without the mark the DQ nodes stay, and the operator computes in floats, as its graph says. A
    profile without floats refuses it then.
    """

    _passes_required_after: ClassVar[set[type]] = set()

    def __init__(self, exported_program: ExportedProgram | None = None) -> None:
        super().__init__()
        self.exported_program = exported_program

    def call(self, graph_module: GraphModule) -> PassResult:
        nodes = [node for node in graph_module.graph.nodes if is_marked_quantized(node)]
        codes: dict[Node, bool | None] = {}
        mixed = {node for node in nodes if self._reads(node, codes) is None}
        for node in reversed(nodes):
            if codes[node] and any(user in mixed or _takes_float(user) for user in node.users if _is_float(node)):
                mixed.add(node)
        for node in mixed:
            node.meta["custom"] = {key: value for key, value in node.meta["custom"].items() if key != MARK_KEY}
            node.meta["safe_arm"] = RULE
            applied(self, node)
        # Only metadata changed, so nothing is traced again.
        return PassResult(graph_module, bool(mixed))

    def _reads(self, node: Node, codes: dict[Node, bool | None]) -> bool | None:
        """Whether an operator reads codes, and no floats: None for both; constants are neither."""
        if node not in codes:
            operands = {self._is_codes(source, codes) for source in node.all_input_nodes if _is_float(source)}
            operands.discard(None)
            codes[node] = None if len(operands) == 2 else True in operands
        return codes[node]

    def _is_codes(self, value: Node, codes: dict[Node, bool | None]) -> bool | None:
        """Whether a float value is dequantised codes, or computed from such; None for constants."""
        if value.target in DQ_OPS:
            return True
        if self.exported_program is not None and is_param_node(self.exported_program, value):
            return None
        if value.op == "call_function" and not value.all_input_nodes:
            return None
        return is_marked_quantized(value) and self._reads(value, codes) is True


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _takes_float(user: Node) -> bool:
    """Whether a reader takes a value as a float: neither a quantiser nor a quantised operator, nor one of its size."""
    if user.target in Q_OPS or is_marked_quantized(user):
        return False
    return user.op == "output" or isinstance(user.meta.get("val"), (torch.Tensor, list, tuple))
