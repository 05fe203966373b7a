"""The node of the float net that computes the value that a unit quantises."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.fx import GraphModule, Node

from safe_arm._compat.numeric_debugger import debug_handle
from safe_arm.accuracy.quantised_units import QuantisedUnit
from safe_arm.core.island import CONV_LIKE, op_name


def counterparts(
    units: Iterable[QuantisedUnit], reference: GraphModule
) -> dict[str, str]:
    """Return the node of a float net by the name of the unit it is the counterpart of.

    A node of the same name and operator is. If the net is not the one that was converted, torchao's debug handles are
    asked, which do not know what a quantiser makes of one operator; a batch norm is taken for the convolution it was
    fused into. Values of other shapes are none.
    """
    units = list(units)
    nodes = {node.name: node for node in reference.graph.nodes}
    converted = all(_same(unit.source, nodes.get(unit.source.name)) for unit in units)
    by_handle = {} if converted else _by_handle(units, reference)
    names = {}
    for unit in units:
        node = by_handle.get(unit.source) or nodes.get(unit.source.name)
        if node is not None:
            node = _normalised(node)
            shape = _shape(node)
            if shape is not None and shape == _shape(unit.source):
                names[unit.source.name] = node.name
    return names


def _by_handle(units: list[QuantisedUnit], reference: GraphModule) -> dict[Node, Node]:
    """Return the node with the debug handle of each unit's source; the last source of several has it."""
    nodes = {debug_handle(node): node for node in reference.graph.nodes}
    sources = {debug_handle(unit.source): unit.source for unit in units}
    pairs = {}
    for handle, source in sources.items():
        if handle is not None and handle in nodes:
            pairs[source] = nodes[handle]
    return pairs


def _normalised(node: Node) -> Node:
    """Return the batch norm that alone reads a convolution, which prepare_pt2e folds into it, or the node itself."""
    if op_name(node) in CONV_LIKE and len(node.users) == 1:
        (user,) = node.users
        if "batch_norm" in op_name(user):
            return user
    return node


def _same(source: Node, node: Node | None) -> bool:
    if node is None or node.op != source.op:
        return False
    return node.op == "placeholder" or node.target is source.target


def _shape(node: Node) -> tuple[int | None, ...] | None:
    """Return the shape of a float tensor, with None for dynamic sizes; None for any other value."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return None
    return tuple(size if isinstance(size, int) else None for size in value.shape)
