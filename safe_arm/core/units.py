"""Quantised units, DQ to Q: nodes that leave a delegate together, so that no operator is cut in half."""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx
import torch
from torch.fx import Node

from safe_arm.core.island import (
    QUANTIZE,
    is_dequantize,
    is_marked_quantized,
    is_quantize,
    op_name,
)

Unit = frozenset[Node]


def units_of(
    nodes: Iterable[Node],
    *,
    float_borders: bool,
    together: Iterable[frozenset[Node]] = (),
) -> tuple[Unit, ...]:
    """Group the nodes of one delegate into the smallest units that can leave it, in topological order.

    Two nodes stay together when the value between them cannot cross the border of a delegate: a dequantised value, a
    value about to be quantised, a float inside a quantised operator (a convolution and its ReLU), a tuple.
    Every prefix of the result is convex if the delegate is.

    Args:
        nodes: the nodes of one delegate, in one graph.
        float_borders: whether the profile lets float values cross the border of a delegate.
        together: more nodes that stay together, such as all that read and write a buffer the delegate owns.
    """
    inside = tuple(nodes)
    flow = nx.DiGraph()
    glue = nx.Graph()
    flow.add_nodes_from(inside)
    glue.add_nodes_from(inside)
    for user in inside:
        for node in user.all_input_nodes:
            if node not in flow:
                continue
            flow.add_edge(node, user)
            if _glued(node, user, float_borders=float_borders):
                glue.add_edge(node, user)
    for group in together:
        nx.add_path(glue, [node for node in inside if node in group])
    groups = nx.condensation(flow, nx.connected_components(glue))
    # Groups that need each other's results are one unit.
    units = nx.condensation(groups)
    position = {node: index for index, node in enumerate(inside)}
    members: dict[int, frozenset[Node]] = {}
    first: dict[int, int] = {}
    for unit, parts in units.nodes(data="members"):
        members[unit] = frozenset[Node]().union(
            *(groups.nodes[p]["members"] for p in parts)
        )
        first[unit] = min(map(position.__getitem__, members[unit]))
    order = nx.lexicographical_topological_sort(units, key=first.__getitem__)
    return tuple(map(members.__getitem__, order))


def computes(unit: Iterable[Node]) -> bool:
    """Tell whether a unit holds more than quantise and dequantise nodes."""
    return any(not is_quantize(node) and not is_dequantize(node) for node in unit)


def _glued(a: Node, b: Node, *, float_borders: bool) -> bool:
    value = a.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return True
    if not (value.dtype.is_floating_point or value.dtype.is_complex):
        return False
    if not float_borders or is_dequantize(a) or op_name(b) == QUANTIZE:
        return True
    # An annotated operator that is not followed by a quantiser shares the one of the operator it feeds.
    return is_marked_quantized(a)
