"""Spare the view and permute propagation a re-trace of the whole graph for every place it changed.

The stock pass re-traces after each round, and makes about one round for each residual block: quadratic. A round
changes few nodes, so here only their values are computed anew, and the graph is re-traced once, at the end.
"""

from __future__ import annotations

import copy
import heapq
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import ExportPass, PassResult
from safe_arm.core.exceptions import Caught, attempted

Place = tuple[Any, Any, Any, Any]


class RetracesInPlace:
    """The methods that ``in_place`` gives to a propagation pass."""

    def __init__(self, propagation: ExportPass) -> None:
        self._pass = propagation
        self._seen: dict[Node, Place] = {}

    def call(self, graph_module: GraphModule) -> PassResult:
        """Propagate as stock does, and re-trace once at the end."""
        self._seen = _places(graph_module)
        result = type(self._pass).call(self._pass, graph_module)
        if not result.modified:
            return result
        # One real re-trace gives nodes the names and the metadata the stock pass leaves.
        return PassResult(
            ExportPass.call(self._pass, result.graph_module).graph_module, True
        )

    def retrace(self, graph_module: GraphModule) -> GraphModule:
        """Remove dead nodes, bring users into graph order and recompute the values that changed."""
        _drop_dead(graph_module)
        places = _places(graph_module)
        changed = [
            node for node, place in places.items() if self._seen.get(node) != place
        ]
        _order_users(changed)
        if isinstance(attempted(_revalue, changed, _fake_mode(graph_module)), Caught):
            # An operator without a fake kernel for quantised values; the real re-trace has one.
            graph_module = type(self._pass)._retrace(self._pass, graph_module)
            places = _places(graph_module)
        self._seen = places
        return graph_module


def in_place(stock: ExportPass) -> ExportPass:
    """Return a propagation pass like another, that re-traces in place.

    Args:
        stock: a ``PropagateViewCopyPermute…Pass`` (1.4 on); it stays as it is.
    """
    ours = copy.copy(stock)
    methods = RetracesInPlace(ours)
    ours.call, ours._retrace = methods.call, methods.retrace
    return ours


def _places(graph_module: GraphModule) -> dict[Node, Place]:
    """What each operator computes, and where it stands."""
    nodes = graph_module.graph.nodes
    operators = (node for node in nodes if node.op != "placeholder")
    return {
        n: (n.target, _comparable(n.args), _comparable(n.kwargs), n._sort_key)
        for n in operators
    }


def _comparable(argument: object) -> object:
    """Return an argument that can be compared without a guard: a dynamic size by its name."""
    if isinstance(argument, (tuple, list)):
        return tuple(map(_comparable, argument))
    if isinstance(argument, dict):
        return {name: _comparable(value) for name, value in argument.items()}
    return str(argument) if isinstance(argument, torch.SymInt) else argument


def _drop_dead(graph_module: GraphModule) -> None:
    for node in reversed(graph_module.graph.nodes):
        if (
            not node.users
            and node.op not in ("placeholder", "output")
            and not node.is_impure()
        ):
            graph_module.graph.erase_node(node)


def _order_users(changed: list[Node]) -> None:
    """A re-traced node lists its users in graph order, and passes go by that order."""
    for node in {before: None for after in changed for before in after.all_input_nodes}:
        users = sorted(node.users)
        node.users.clear()
        node.users.update(dict.fromkeys(users))


def _revalue(changed: list[Node], mode: FakeTensorMode | None) -> None:
    """Recompute the values of changed nodes, and of their readers as far as those could notice, in graph order."""
    waiting = list(changed)
    heapq.heapify(waiting)
    done: Node | None = None
    while waiting:
        node = heapq.heappop(waiting)
        if node is not done and node.op == "call_function" and _revalued(node, mode):
            for reader in node.users:
                heapq.heappush(waiting, reader)
        done = node


def _revalued(node: Node, mode: FakeTensorMode | None) -> bool:
    """Compute a node's value from its inputs' values and tell whether readers could notice a difference."""
    args, kwargs = torch.fx.node.map_arg(
        (node.args, node.kwargs), lambda before: before.meta["val"]
    )
    before = node.meta.get("val")
    with mode or FakeTensorMode(), enable_python_dispatcher():
        node.meta["val"] = node.target(*args, **kwargs)  # type: ignore[operator]
    return _looks(before) != _looks(node.meta["val"])


def _looks(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.dtype, _comparable(tuple(value.shape)), _comparable(value.stride())
    return (
        tuple(map(_looks, value))
        if isinstance(value, (list, tuple))
        else _comparable(value)
    )


def _fake_mode(graph_module: GraphModule) -> FakeTensorMode | None:
    values = (node.meta.get("val") for node in graph_module.graph.nodes)
    return next(
        (value.fake_mode for value in values if isinstance(value, FakeTensor)), None
    )
