"""Cut a delegate out of a program at a cost that depends on the delegate, not on the whole program.

For each delegate ``to_backend`` copies all nodes of the program into a new graph to sort them, searches everything that
follows for cycles, and writes the program out as Python code for a log line at DEBUG. Here the nodes are sorted in
place, the search ends where the delegate does, and the code is written only if DEBUG is logged.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from executorch.exir.delegate import executorch_call_delegate
from torch.fx import Graph, GraphModule, Node

from safe_arm._compat.upstream import EdgeOpOverload
from safe_arm.acceleration.shortcuts import shortcuts, taking


def cheap() -> AbstractContextManager[None]:
    """Make the cost of a cut depend on its delegate alone, in this thread, while the block runs."""
    return taking(cheap_cuts=True)


def cutting_out(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the cutting out of delegates: it is cheap in the block of ``cheap``."""

    def create_partitions(*args: Any, **kwargs: Any) -> Any:
        with taking(cutting=shortcuts().cheap_cuts):
            return stock(*args, **kwargs)

    return create_partitions


def unwritten(stock: Callable[[GraphModule], str]) -> Callable[[GraphModule], str]:
    """Wrap a module's text: nobody reads it while a delegate is cut out, unless DEBUG is logged."""

    def as_text(self: GraphModule) -> str:
        if not shortcuts().cutting or logging.getLogger().isEnabledFor(logging.DEBUG):
            return stock(self)
        return f"{type(self).__name__}()"

    return as_text


def acyclic(stock: Callable[[list[Node]], bool]) -> Callable[[list[Node]], bool]:
    """Wrap the search for cycles: it ends where the delegate does."""

    def validate_partition(partition: list[Node]) -> bool:
        if not shortcuts().cutting:
            return stock(partition)
        # The graph is sorted, so that no node behind the last one leads back.
        inside = set(partition)
        last = max(partition)
        seen = set[Node]()
        waiting: list[Node] = []
        for node in partition:
            waiting += node.users.keys() - inside
        while waiting:
            node = waiting.pop()
            if node in inside:
                return False
            if node not in seen and node < last:
                seen.add(node)
                waiting += node.users
        return True

    return validate_partition


def sorted_in_place(
    stock: Callable[[GraphModule], GraphModule],
) -> Callable[[GraphModule], GraphModule]:
    """Wrap the sorting of a graph: its nodes stay where they are made."""

    def legalize_graph(graph_module: GraphModule) -> GraphModule:
        graph = graph_module.graph
        nodes = list(graph.nodes)
        if not shortcuts().cutting or not all(map(_is_sorted_by_inputs, nodes)):
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
