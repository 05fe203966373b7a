"""Insert tables before passes that go by dtypes (known issues T72, L2 and L3)."""

from __future__ import annotations

from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import PassResult
from safe_arm.core.island import op_name
from safe_arm.core.operators import VIEWS
from safe_arm.passes.applied import applied
from safe_arm.passes.insert_table_ops import InsertTableOpsPass
from safe_arm.passes.invariants.domains import input_qparams

_CAST = "dim_order_ops::_to_dim_order_copy"
_POOL = "aten::avg_pool2d"
#: Operators of codes whose fake values are floats behind a function: with qparams of their own, and without.
_EXTREMES = frozenset(("aten::amax", "aten::amin"))
_WITHOUT_QPARAMS = VIEWS | {"aten::max_pool2d"}
#: The operators whose operands a stock pass casts to one dtype.
_MATCHED = frozenset(("aten::where", "aten::sub"))


class InsertEarlyTablesPass(InsertTableOpsPass):
    """Inserts the tables of a graph where an operator of codes would be taken for one of floats.

    Until a table takes its place, the fake value of a function of codes is a float, and so is what a linear, a maximum
    or a view makes of it. Stock passes that come before go by that dtype. They cast the codes of a ``where``'s other
    operand to floats, compare codes with 0.0 in front of a cast, and make an AVG_POOL2D of floats: each ends the
    export.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        calls = graph_module.graph.nodes
        misread = [node for node in calls if _is_taken_for_floats(node)]
        if not misread:
            return PassResult(graph_module, False)
        for node in misread:
            applied(self, node)
        return super().call(graph_module)


def _is_taken_for_floats(node: Node) -> bool:
    """Tell whether a node reads codes whose fake value is a float, and a stock pass goes by that."""
    operator = op_name(node)
    if operator == _CAST:
        return _is_float(node.all_input_nodes[0]) and _moves_codes(node)
    if operator != _POOL and operator not in _MATCHED:
        return False
    operands = [node.args[index] for index in input_qparams(node)]
    floats = [_is_float(operand) for operand in operands if isinstance(operand, Node)]
    if operator == _POOL:
        return any(floats)
    return any(floats) and not all(floats)


def _is_float(node: Node) -> bool:
    value = node.meta["val"]
    return value.is_floating_point()  # type: ignore[no-any-return]


def _moves_codes(cast: Node) -> bool:
    """Tell whether a cast reads a quantised extreme, or a quantised value behind what has no qparams."""
    (first,) = cast.all_input_nodes
    moved = first
    while op_name(moved) in _WITHOUT_QPARAMS and not moved.meta.get("output_qparams"):
        moved = moved.all_input_nodes[0]
    is_moved = moved is not first or op_name(moved) in _EXTREMES
    return is_moved and bool(moved.meta.get("output_qparams"))
