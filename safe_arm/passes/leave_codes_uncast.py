"""Do not cast codes to floats beside an operand that is a float until it becomes a table (known issue L3)."""

from __future__ import annotations

from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import PassResult
from safe_arm.core.island import op_name
from safe_arm.passes.applied import CorrectivePass, applied
from safe_arm.passes.invariants.domains import input_qparams

_CAST = "dim_order_ops::_to_dim_order_copy"
#: The operators whose operands the stock pass casts to one dtype.
_MATCHED = frozenset(("aten::where", "aten::sub"))


class LeaveCodesUncastPass(CorrectivePass):
    """Takes back what the stock pass casts to floats among the operands of a quantised operator.

    A quantised value has the dtype of a float until it becomes TOSA's. The stock pass goes by that dtype: behind a
    linear of a tanh it casts the codes of the other operand, which are never made codes again.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        for node in list(graph_module.graph.nodes):
            if op_name(node) not in _MATCHED:
                continue
            domains = input_qparams(node)
            for index, operand in enumerate(node.args):
                if index not in domains or not _is_cast_of_codes(operand):
                    continue
                assert isinstance(operand, Node)
                node.replace_input_with(operand, operand.all_input_nodes[0])
                applied(self, node)
                modified = True
        if modified:
            graph_module.graph.eliminate_dead_code()
        return self.retraced(graph_module, modified)


def _is_cast_of_codes(operand: object) -> bool:
    """Tell whether a value is a cast from integers to floats."""
    if not isinstance(operand, Node) or op_name(operand) != _CAST:
        return False
    before = operand.all_input_nodes[0].meta["val"].dtype
    after = operand.meta["val"].dtype
    return after.is_floating_point and not before.is_floating_point  # type: ignore[no-any-return]
