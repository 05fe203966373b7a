"""The hardtanh nodes of a graph and their bounds, which export drops if they equal the schema's defaults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.fx import GraphModule, Node

from safe_arm.core.island import activation_bounds, call_functions, op_name

HARDTANH = ("aten::hardtanh", "aten::hardtanh_")


def incomplete_hardtanhs(graph_module: GraphModule) -> Iterator[Node]:
    """Yield the hardtanh nodes of a graph, nested ones included, that do not name both bounds by position."""
    for node in call_functions(graph_module):
        if op_name(node) in HARDTANH and len(node.args) < 3:
            yield node


def complete(node: Node) -> None:
    """Spell out both bounds of a hardtanh node, by position."""
    bounds = activation_bounds(node)
    assert bounds is not None
    node.args = (node.args[0], bounds.low, bounds.high)
    node.kwargs = {}


@contextmanager
def completed_hardtanh_arguments(graph_module: GraphModule) -> Iterator[None]:
    """Complete hardtanh arguments while the block runs, then restore them: the graph must not change."""
    nodes = list(incomplete_hardtanhs(graph_module))
    before = [(node.args, node.kwargs) for node in nodes]
    for node in nodes:
        complete(node)
    try:
        yield
    finally:
        for node, (args, kwargs) in zip(nodes, before, strict=True):
            node.args = args
            node.kwargs = kwargs
