"""A condition in the body of a loop is computed as both of its branches and a choice."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.control_flow import CONDITION, LOOP, branches_of
from safe_arm.core.island import graph_modules
from safe_arm.quantizer.graphs.graph_edits import calls, replace_node
from safe_arm.quantizer.graphs.plain_scopes import written_in

_WHERE = torch.ops.aten.where.self


def choose_in_loops(model: GraphModule) -> None:
    """Replace the conditions in the bodies of loops by choices between what their branches compute.

    While it converts a loop's body, torchao loses the graphs of the conditions in it, and raises (T67).

    Args:
        model: a float graph before annotation; the bodies of its loops are changed in place.
    """
    for graph_module in graph_modules(model):
        for loop in calls(graph_module, LOOP):
            _, body = branches_of(loop)
            while conditions := list(calls(body, CONDITION)):
                for condition in conditions:
                    _choose(condition, body)
            body.recompile()


def _choose(condition: Node, body: GraphModule) -> None:
    arguments: Any = condition.args
    predicate, *reads, operands = arguments
    results = []
    for read, branch in zip(reads, branches_of(condition), strict=True):
        results.append(written_in(branch, operands, condition, read.target))
    for pick in list(condition.users):
        index = pick.args[1]
        values = (predicate, results[0][index], results[1][index])
        with body.graph.inserting_before(condition):
            chosen = body.graph.call_function(_WHERE, values)
        chosen.meta = dict(pick.meta)
        replace_node(pick, chosen)
    body.graph.erase_node(condition)
    for read in reads:
        body.graph.erase_node(read)
        body.delete_submodule(read.target)
