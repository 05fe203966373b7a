"""Treat an infinite bound as no bound, and keep a norm of infinite order (known issue T24)."""

from __future__ import annotations

import math

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Argument

from safe_arm.core.island import (
    arguments_by_name,
    call_functions,
    graph_modules,
    op_name,
)
from safe_arm.core.operators import named
from safe_arm.quantizer.graphs.graph_edits import replace_node

_ATEN = torch.ops.aten
_LARGEST = torch.finfo(torch.float32).max
_CLAMPS = ("aten::clamp", "aten::clamp_", "aten::hardtanh", "aten::hardtanh_")
#: Operators whose number is the order of a norm; on a vector norm of infinite order stock raises, which is contained.
_NORMS = named(
    "cdist dist linalg_cond linalg_matrix_norm linalg_norm norm pdist renorm"
)


def open_infinite_bounds(model: GraphModule) -> None:
    """Leave out the infinite bounds of clamps; stock's passes make 255 of them, as of the infinities of a mask.

    Args:
        model: a float graph before annotation, the branches of its control flow included, every hardtanh with both of
            its bounds; changed in place.
    """
    for module in graph_modules(model):
        for node in list(module.graph.nodes):
            if node.op == "call_function" and op_name(node) in _CLAMPS:
                _open(node)
        module.recompile()


def norms_of_infinite_order(model: GraphModule) -> dict[str, str]:
    """Return the nodes that are norms of infinite order, whose order would become 255, each with why it stays float."""
    why = "its order is infinite, of which the passes before annotation make 255"
    reasons = {}
    for node in call_functions(model):
        if op_name(node) in _NORMS and any(map(_is_inf, node.args)):
            reasons[node.name] = why
    return reasons


def _is_inf(argument: Argument) -> bool:
    return isinstance(argument, float) and math.isinf(argument)


def _open(node: Node) -> None:
    source, low, high = arguments_by_name(node).values()
    no_low = isinstance(low, float) and low <= -_LARGEST
    no_high = isinstance(high, float) and high >= _LARGEST
    if not no_low and not no_high:
        return
    low = None if no_low else low
    high = None if no_high else high
    if low is None and high is None:
        replace_node(node, source)
        return
    node.target = _ATEN.clamp.default
    node.args, node.kwargs = (source, low, high), {}
