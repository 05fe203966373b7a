"""Spare the view and permute propagation a re-trace of the whole graph for every place it changed.

The stock pass re-traces after each round, and makes about one round for each residual block: quadratic. A round
changes few nodes, so here only their values are computed anew, and the graph is re-traced once, at the end.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import ExportPass, PassResult
from safe_arm.blame import is_fatal

Call = tuple[Any, Any, Any]


class RetracesInPlace:
    """What ``in_place`` puts in front of a propagation pass: ``_retrace`` without the re-trace."""

    _seen: dict[Node, Call]

    def call(self, graph_module: GraphModule) -> PassResult:
        self._seen = _calls(graph_module)
        result = super().call(graph_module)  # type: ignore[misc]
        if not result.modified:
            return result
        # One real re-trace gives nodes the names and the metadata the stock pass leaves.
        return PassResult(ExportPass.call(self, result.graph_module).graph_module, True)  # type: ignore[arg-type]

    def _retrace(self, graph_module: GraphModule) -> GraphModule:
        """Remove dead nodes, bring users into graph order and recompute the values that changed."""
        _drop_dead(graph_module)
        _order_users(graph_module)
        try:
            _revalue(graph_module, self._seen)
        except Exception as error:  # An operator without a fake kernel for quantised values; the real re-trace has one.
            if is_fatal(error):
                raise
            graph_module = super()._retrace(graph_module)  # type: ignore[misc]
        self._seen = _calls(graph_module)
        return graph_module


def in_place(stock: Any) -> Any:
    """Return a propagation pass that re-traces in place, with the stock pass's state and its class's name.

    Args:
        stock: a ``PropagateViewCopyPermute…Pass`` (1.4 on).
    """
    cls: Any = type(stock)
    ours: Any = object.__new__(_in_place_class(cls))
    ours.__dict__.update(stock.__dict__)
    return ours


@cache
def _in_place_class(stock: Any) -> Any:
    return type(stock.__name__, (RetracesInPlace, stock), {"__module__": __name__})


def _call(node: Node) -> Call:
    return node.target, node.args, node.kwargs


def _calls(graph_module: GraphModule) -> dict[Node, Call]:
    return {node: _call(node) for node in graph_module.graph.nodes if node.op == "call_function"}


def _drop_dead(graph_module: GraphModule) -> None:
    for node in reversed(graph_module.graph.nodes):
        if not node.users and node.op not in ("placeholder", "output") and not node.is_impure():
            graph_module.graph.erase_node(node)


def _order_users(graph_module: GraphModule) -> None:
    """A re-traced node lists its users in graph order, and passes go by that order."""
    for node in graph_module.graph.nodes:
        node.users.clear()
    for node in graph_module.graph.nodes:
        for before in node.all_input_nodes:
            before.users[node] = None


def _revalue(graph_module: GraphModule, seen: dict[Node, Call]) -> None:
    mode = _fake_mode(graph_module)
    stale: set[Node] = set()
    for node in graph_module.graph.nodes:
        if node.op != "call_function":
            continue
        changed = seen.get(node) != _call(node) or not stale.isdisjoint(node.all_input_nodes)
        if changed and _revalued(node, mode):
            stale.add(node)


def _revalued(node: Node, mode: FakeTensorMode | None) -> bool:
    """Compute a node's value from its inputs' values and tell whether readers could notice a difference."""
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda before: before.meta["val"])
    before = node.meta.get("val")
    with mode or FakeTensorMode(), enable_python_dispatcher():
        node.meta["val"] = node.target(*args, **kwargs)  # type: ignore[operator]
    return _looks(before) != _looks(node.meta["val"])


def _looks(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.stride()
    return tuple(map(_looks, value)) if isinstance(value, (list, tuple)) else value


def _fake_mode(graph_module: GraphModule) -> FakeTensorMode | None:
    values = (node.meta.get("val") for node in graph_module.graph.nodes)
    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
