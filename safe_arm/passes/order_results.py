"""Let a condition or a loop return first, and in order, the results that are read."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeVar

from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import PassResult
from safe_arm.core.control_flow import CONDITION, LOOP, branches_of
from safe_arm.passes.applied import CorrectivePass, applied

_Element = TypeVar("_Element")


class OrderResultsPass(CorrectivePass):
    """Drops the results of a condition that nothing reads, and moves those of a loop behind the others.

    The backend names the results of either operator after the nodes that read them, one after the other. Where nothing
    reads the first result, the reader of the second one gets the first (S53).
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        for node in list(graph_module.graph.nodes):
            if node.target in (CONDITION, LOOP) and self.correct(node):
                applied(self, node)
                modified = True
        return PassResult(graph_module, modified)

    def correct(self, node: Node) -> bool:
        read: list[int] = []
        for reader in node.users:
            if reader.target is not operator.getitem:
                return False
            index: Any = reader.args[1]
            if index in read:
                return False
            read.append(index)
        count = len(node.meta["val"])
        order = read
        if node.target is LOOP:
            order = read + [index for index in range(count) if index not in read]
        if order == list(range(count)) or not read:
            return False
        if node.target is LOOP:
            _reorder_carried(node, order)
        _reorder_results(node, order)
        return True


def _reorder_carried(loop: Node, order: list[int]) -> None:
    """Hand the values that a loop carries to it, to its condition and to its body in another order."""
    arguments: Any = loop.args
    condition, body, carried, *others = arguments
    loop.args = (condition, body, _reordered(carried, order), *others)
    for graph_module in branches_of(loop):
        graph = graph_module.graph
        inputs = graph.find_nodes(op="placeholder")[: len(order)]
        for placeholder in reversed(_reordered(inputs, order)):
            next(iter(graph.nodes)).prepend(placeholder)
        graph_module.recompile()


def _reorder_results(node: Node, order: list[int]) -> None:
    """Return some of the results, in another order."""
    returning = branches_of(node)
    if node.target is LOOP:
        del returning[0]
    for graph_module in returning:
        output = graph_module.graph.output_node()
        results: Any = output.args[0]
        output.args = (_reordered(results, order),)
        graph_module.graph.eliminate_dead_code()
        graph_module.recompile()
    for reader in list(node.users):
        index: Any = reader.args[1]
        reader.update_arg(1, order.index(index))
    node.meta["val"] = _reordered(node.meta["val"], order)


def _reordered(elements: Sequence[_Element], order: list[int]) -> tuple[_Element, ...]:
    return tuple(elements[index] for index in order)
