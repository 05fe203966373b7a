"""Leave views of dynamic sizes where they are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

from torch import SymInt
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from safe_arm._compat.upstream import ExportPass
from safe_arm.core.island import call_functions, op_name
from safe_arm.passes.applied import noted

#: The correction's name and its known issue.
DYNAMIC_VIEWS = ("dynamic-views", "S49")


def on_static_views(stock: ExportPass) -> ExportPass:
    """Return a pass like another that moves or merges views, but leaves a graph with a view of a dynamic size alone.

    Such passes of stock's take the node that gives a size for the size itself (S49): a linear layer with a dynamic
    batch, which is written with views, aborts the lowering.

    Args:
        stock: the pass; it stays as it is.
    """
    if not hasattr(stock, "should_run_pass"):  # Before 1.4.
        return stock
    ours = copy.copy(stock)
    ours.should_run_pass = partial(_should_run, stock.should_run_pass)
    return ours


def _should_run(
    should_stock: Callable[[GraphModule], bool],
    graph_module: GraphModule,
) -> bool:
    for node in call_functions(graph_module):
        if op_name(node) == "aten::view_copy" and _is_dynamic(node):
            noted(*DYNAMIC_VIEWS, node)
            return False
    return should_stock(graph_module)


def _is_dynamic(view: Node) -> bool:
    """Tell whether a size of a view is no number."""
    sizes = tree_leaves(view.args[1:])
    return any(isinstance(size, (SymInt, Node)) for size in sizes)
