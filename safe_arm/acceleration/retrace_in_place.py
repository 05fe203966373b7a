"""Propagate views and permutes without re-tracing the whole graph for every place that changed.

The stock pass re-traces after each round, and makes about one round for each residual block, which is quadratic. A
round changes few nodes. Here only their values are recomputed, and the graph is re-traced once, at the end.
"""

from __future__ import annotations

import copy
import heapq
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node

from safe_arm._compat.dynamic_sizes import fake_mode_of
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
        retraced = ExportPass.call(self._pass, result.graph_module)
        return PassResult(retraced.graph_module, True)

    def retrace(self, graph_module: GraphModule) -> GraphModule:
        """Remove dead nodes, bring users into graph order and recompute the values that changed."""
        for node in reversed(graph_module.graph.nodes):
            if node.users or node.op in ("placeholder", "output"):
                continue
            if not node.is_impure():
                graph_module.graph.erase_node(node)
        places = _places(graph_module)
        changed = [node for node in places if self._is_new(node, places[node])]
        _order_users(changed)
        revalued = attempted(_revalue, changed, fake_mode_of(graph_module))
        if isinstance(revalued, Caught):
            # An operator without a fake kernel for quantised values; the real re-trace has one.
            graph_module = type(self._pass)._retrace(self._pass, graph_module)
            places = _places(graph_module)
        self._seen = places
        return graph_module

    def _is_new(self, node: Node, place: Place) -> bool:
        """Tell whether a node was changed or moved; fx gives one that is changed another tuple of arguments."""
        before = self._seen.get(node)
        if before is None:
            return True
        target, args, kwargs, position = place
        if before[0] is not target or before[1] is not args:
            return True
        return before[2] is not kwargs or before[3] != position


def in_place(stock: ExportPass) -> ExportPass:
    """Return a propagation pass like another, that re-traces in place.

    Args:
        stock: a ``PropagateViewCopyPermute…Pass`` (1.4 on); it stays as it is.
    """
    ours = copy.copy(stock)
    methods = RetracesInPlace(ours)
    ours.call = methods.call
    ours._retrace = methods.retrace
    return ours


def _places(graph_module: GraphModule) -> dict[Node, Place]:
    """Return the target, the arguments and the position of each operator."""
    places: dict[Node, Place] = {}
    for n in graph_module.graph.nodes:
        if n.op != "placeholder":
            places[n] = n.target, n.args, n.kwargs, n._sort_key
    return places


def _comparable(argument: object) -> object:
    """Return sizes that can be compared without a guard: a dynamic one by its name."""
    if isinstance(argument, (tuple, list)):
        return tuple(map(_comparable, argument))
    return str(argument) if isinstance(argument, torch.SymInt) else argument


def _order_users(changed: list[Node]) -> None:
    """Sort the users of changed nodes' inputs: a re-traced node lists them in graph order, and passes rely on it."""
    inputs: dict[Node, None] = {}
    for node in changed:
        inputs.update(dict.fromkeys(node.all_input_nodes))
    for node in inputs:
        users = sorted(node.users)
        node.users.clear()
        node.users.update(dict.fromkeys(users))


def _revalue(changed: list[Node], mode: FakeTensorMode | None) -> None:
    """Recompute the values of changed nodes in graph order, and those of readers whose inputs then look different."""
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
        (node.args, node.kwargs), lambda source: source.meta["val"]
    )
    before = node.meta.get("val")
    with mode or FakeTensorMode(), enable_python_dispatcher():
        node.meta["val"] = node.target(*args, **kwargs)  # type: ignore[operator]
    return _look(before) != _look(node.meta["val"])


def _look(value: object) -> object:
    """Return the parts of a value that its readers' values depend on."""
    if isinstance(value, torch.Tensor):
        return value.dtype, _comparable(tuple(value.shape)), _comparable(value.stride())
    if isinstance(value, (list, tuple)):
        return tuple(map(_look, value))
    return _comparable(value)
