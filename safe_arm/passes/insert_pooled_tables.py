"""Insert tables before pools read them (known issue T72)."""

from __future__ import annotations

from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import PassResult, exir_ops, get_first_fake_tensor
from safe_arm.passes.applied import applied
from safe_arm.passes.insert_table_ops import InsertTableOpsPass
from safe_arm.passes.invariants.domains import input_qparams

_POOL = exir_ops.edge.aten.avg_pool2d.default


class InsertPooledTablesPass(InsertTableOpsPass):
    """Inserts the tables of a graph where an average pool of codes reads a function.

    Until a table takes its place, the fake value of a function of codes is a float. Stock rewrites the pool before, and
    an AVG_POOL2D of floats in an integer profile ends the export.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        pools = graph_module.graph.find_nodes(op="call_function", target=_POOL)
        waiting = list(filter(_reads_floats, pools))
        if not waiting:
            return PassResult(graph_module, False)
        for pool in waiting:
            applied(self, pool)
        return super().call(graph_module)


def _reads_floats(pool: Node) -> bool:
    """Tell whether the fake value that a pool of codes reads is a float."""
    (value,) = pool.all_input_nodes
    return 0 in input_qparams(pool) and get_first_fake_tensor(value).is_floating_point()
