"""Delegates are cut out of a program at the price of the delegate, where ExecuTorch pays for the whole program.

For each delegate ``to_backend`` copies all nodes of the program into a new graph to sort them, looks for cycles in all
that follows, and writes the program out as Python code for a line at DEBUG that nobody reads. Here the nodes are sorted
where they are, the search ends where the delegate does, and the code is written if DEBUG is logged.
"""

from __future__ import annotations

import logging
import operator
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from executorch.exir.delegate import executorch_call_delegate
from torch.fx import Graph, GraphModule, Node

from safe_arm._compat.upstream import EdgeOpOverload
from safe_arm.acceleration.shortcuts import shortcuts, taking


def cheap() -> AbstractContextManager[None]:
    """Let a cut cost what its delegate does, in this thread, while the block runs."""
    return taking(cheap_cuts=True)


def cutting_out(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the cutting out of delegates: it costs what they do in the block of ``cheap``."""

    def create_partitions(*args: Any, **kwargs: Any) -> Any:
        with taking(cutting=shortcuts().cheap_cuts):
            return stock(*args, **kwargs)

    return create_partitions


def unwritten(stock: Callable[[GraphModule], str]) -> Callable[[GraphModule], str]:
    """Wrap a module's text: nobody reads it while a delegate is cut out, unless DEBUG is logged."""

    def as_text(self: GraphModule) -> str:
        unread = shortcuts().cutting and not logging.getLogger().isEnabledFor(
            logging.DEBUG
        )
        return f"{type(self).__name__}()" if unread else stock(self)

    return as_text


def acyclic(stock: Callable[[list[Node]], bool]) -> Callable[[list[Node]], bool]:
    """Wrap the search for cycles: it ends where the delegate does."""

    def validate_partition(partition: list[Node]) -> bool:
        if not shortcuts().cutting:
            return stock(partition)
        # The graph is sorted, so that what follows the last node leads nowhere back.
        inside, last, seen = set(partition), max(partition), set[Node]()
        waiting = [
            user for node in partition for user in node.users if user not in inside
        ]
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
        if not shortcuts().cutting or not all(map(_takes_its_turn, nodes)):
            return stock(graph_module)
        order = _breadth_first(nodes)
        if len(order) < len(nodes):
            return stock(graph_module)  # It says which nodes are in a cycle.
        _arrange(graph, nodes, order)
        graph_module.recompile()
        return graph_module

    return legalize_graph


def _takes_its_turn(node: Node) -> bool:
    """Whether stock sorts a node like any other; it puts assertions and arithmetic on sizes first."""
    return (
        node.op != "call_function"
        or isinstance(node.target, EdgeOpOverload)
        or node.target in (operator.getitem, executorch_call_delegate)
    )


def _breadth_first(nodes: Iterable[Node]) -> list[Node]:
    """Sort nodes as stock does: each as soon as all it reads is there; those of a cycle are missing."""
    missing = {node: len(node._input_nodes) for node in nodes}
    order = []
    ready = deque(node for node, count in missing.items() if not count)
    while ready:
        node = ready.popleft()
        order.append(node)
        for user in node.users:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return order


def _arrange(graph: Graph, nodes: list[Node], order: list[Node]) -> None:
    """Leave a graph as if its nodes had been copied into an empty one, in order."""
    moved = next(
        (
            index
            for index, pair in enumerate(zip(nodes, order, strict=True))
            if pair[0] is not pair[1]
        ),
        None,
    )
    for node in () if moved is None else order[moved:]:
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
        names._base_count[base] = (
            names._base_count.get(base, 0) if number is None else number
        )
    graph._graph_namespace = names


@cache
def _parts(name: str) -> tuple[str, int | None]:
    base, _, number = name.rpartition("_")
    return (base, int(number)) if base and number.isdecimal() else (name, None)
