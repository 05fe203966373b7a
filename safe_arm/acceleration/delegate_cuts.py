"""Cut a delegate out of a program at a cost that depends on the delegate, not on the whole program.

For each delegate ``to_backend`` copies all nodes of the program into a new graph to sort them, and writes the program
out as Python code for a log line at DEBUG. Here the nodes are sorted in place, and the code is written only if DEBUG is
logged.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cache

from executorch.exir.delegate import executorch_call_delegate
from torch.fx import Graph, GraphModule, Node

from safe_arm._compat.upstream import EdgeOpOverload
from safe_arm.acceleration.shortcuts import shortcuts, taking


def cheap() -> AbstractContextManager[None]:
    """Make the cost of a cut depend on its delegate alone, in this thread, while the block runs."""
    return taking(cheap_cuts=True)


def unwritten(graph_module: GraphModule) -> None:
    """Let a graph that delegates are cut out of be a mere name in logs, until DEBUG is logged."""
    if not shortcuts().cheap_cuts:
        return
    for module in graph_module.modules():
        if isinstance(module, GraphModule):
            # Every graph module has a class of its own.
            setattr(type(module), "__str__", _as_text)  # noqa: B010


def _as_text(module: GraphModule) -> str:
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        return GraphModule.__str__(module)
    return f"{type(module).__name__}()"


def sorted_in_place(
    stock: Callable[[GraphModule], GraphModule],
) -> Callable[[GraphModule], GraphModule]:
    """Wrap the sorting of a graph: its nodes stay where they are made."""

    def legalize_graph(graph_module: GraphModule) -> GraphModule:
        graph = graph_module.graph
        nodes = list(graph.nodes)
        if not shortcuts().cheap_cuts or not all(map(_is_sorted_by_inputs, nodes)):
            return stock(graph_module)
        order = _breadth_first(nodes)
        if len(order) < len(nodes):
            return stock(graph_module)  # It says which nodes are in a cycle.
        _arrange(graph, nodes, order)
        graph_module.recompile()
        return graph_module

    return legalize_graph


def _is_sorted_by_inputs(node: Node) -> bool:
    """Tell whether stock sorts a node by its inputs alone; it puts assertions and arithmetic on sizes first."""
    if node.op != "call_function" or isinstance(node.target, EdgeOpOverload):
        return True
    return node.target in (operator.getitem, executorch_call_delegate)


def _breadth_first(nodes: Iterable[Node]) -> list[Node]:
    """Sort nodes as stock does: each as soon as all its inputs are there; nodes of a cycle are left out."""
    missing, order = {}, []
    for node in nodes:
        missing[node] = len(node._input_nodes)
        if not node._input_nodes:
            order.append(node)
    for node in order:  # It grows meanwhile.
        for user in node.users:
            missing[user] -= 1
            if not missing[user]:
                order.append(user)
    return order


def _arrange(graph: Graph, nodes: list[Node], order: list[Node]) -> None:
    """Leave a graph as if its nodes had been copied into an empty one, in order."""
    moved = False
    for before, node in zip(nodes, order, strict=True):
        moved = moved or before is not node
        if moved:
            graph._root.prepend(node)
    for node in order:
        if len(node.users) > 1:
            users = sorted(node.users)
            node.users.clear()
            node.users.update(dict.fromkeys(users))
    _name_afresh(graph, order)


def _name_afresh(graph: Graph, nodes: list[Node]) -> None:
    """Let a graph's next name be what it is in a graph that never had other nodes."""
    names = type(graph._graph_namespace)()
    names._obj_to_name = {node: node.name for node in nodes}
    names._used_names = set(names._obj_to_name.values())
    for name in names._obj_to_name.values():
        base, number = _parts(name)
        if number is None:
            number = names._base_count.get(base, 0)
        names._base_count[base] = number
    graph._graph_namespace = names


@cache
def _parts(name: str) -> tuple[str, int | None]:
    """Split a name into its base and its number."""
    base, _, number = name.rpartition("_")
    if not base or not number.isdecimal():
        return name, None
    return base, int(number)
