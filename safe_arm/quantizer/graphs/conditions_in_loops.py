"""A condition in the body of a loop is computed as both of its branches and a choice."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules
from safe_arm.quantizer.graphs.graph_edits import calls, replace_node
from safe_arm.quantizer.graphs.plain_scopes import written_in

_CONDITION = torch.ops.higher_order.cond
_LOOP = torch.ops.higher_order.while_loop
_WHERE = torch.ops.aten.where.self


def choose_in_loops(model: GraphModule) -> None:
    """Replace the conditions in the bodies of loops by choices between what their branches compute.

    While it converts a loop's body, torchao loses the graphs of the conditions in it, and raises (T67).

    Args:
        model: a float graph before annotation; the bodies of its loops are changed in place.
    """
    for graph_module in graph_modules(model):
        for loop in calls(graph_module, _LOOP):
            read: Any = loop.args[1]
            body = graph_module.get_submodule(read.target)
            assert isinstance(body, GraphModule)
            while conditions := list(calls(body, _CONDITION)):
                for condition in conditions:
                    _choose(condition, body)
            body.recompile()


def _choose(condition: Node, body: GraphModule) -> None:
    arguments: Any = condition.args
    predicate, *branches, operands = arguments
    results = []
    for read in branches:
        branch = body.get_submodule(read.target)
        assert isinstance(branch, GraphModule)
        results.append(written_in(branch, operands, condition, read.target))
    for pick in list(condition.users):
        index = pick.args[1]
        values = (predicate, results[0][index], results[1][index])
        with body.graph.inserting_before(condition):
            chosen = body.graph.call_function(_WHERE, values)
        chosen.meta = dict(pick.meta)
        replace_node(pick, chosen)
    body.graph.erase_node(condition)
    for read in branches:
        body.graph.erase_node(read)
        body.delete_submodule(read.target)
