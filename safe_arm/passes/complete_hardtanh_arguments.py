"""Give every hardtanh its bounds back: export drops arguments that equal the schema's defaults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import ArmPass, ConvertToClampPass, PassResult
from safe_arm.core.island import activation_bounds, call_functions, op_name
from safe_arm.passes.applied import applied

HARDTANH = ("aten::hardtanh", "aten::hardtanh_")


def incomplete_hardtanhs(graph_module: GraphModule) -> Iterator[Node]:
    """Yield the hardtanh nodes of a graph, nested ones included, that do not name both bounds by position."""
    return (n for n in call_functions(graph_module) if op_name(n) in HARDTANH and len(n.args) < 3)


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
            node.args, node.kwargs = args, kwargs


class CompleteHardtanhArgumentsPass(ArmPass):
    """Completes hardtanh arguments before any stock pass reads ``args[1]`` and ``args[2]`` unconditionally.

    Four places do from 1.2 to 1.5: the check in the partitioner, FuseQuantizedActivationPass twice, ConvertToClampPass.
    """

    _passes_required_after: ClassVar[set[type]] = {ConvertToClampPass}

    def call(self, graph_module: GraphModule) -> PassResult:
        nodes = list(incomplete_hardtanhs(graph_module))
        for node in nodes:
            complete(node)
            applied(self, node)
        return PassResult(graph_module, bool(nodes))
