"""Which node of the float net computes the value that a unit quantises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
    pairs = (
        (unit.source, by_handle.get(unit.source) or nodes.get(unit.source.name))
        for unit in units
    )
    found = {source: _normalised(node) for source, node in pairs if node is not None}
    return {
        source.name: node.name for source, node in found.items() if _alike(source, node)
    }


def _by_handle(units: list[QuantisedUnit], reference: GraphModule) -> dict[Node, Node]:
    known = {
        handle: node
        for node in reference.graph.nodes
        if (handle := debug_handle(node)) is not None
    }
    last = {
        handle: unit.source
        for unit in units
        if (handle := debug_handle(unit.source)) is not None
    }
    return {source: known[handle] for handle, source in last.items() if handle in known}


def _normalised(node: Node) -> Node:
    """Return the batch norm that alone reads a convolution, which prepare_pt2e folds into it, or the node itself."""
    user = next(iter(node.users), None)
    folds = (
        op_name(node) in CONV_LIKE
        and user is not None
        and len(node.users) == 1
        and "batch_norm" in op_name(user)
    )
    return user if folds and user is not None else node


def _same(source: Node, node: Node | None) -> bool:
    return (
        node is not None
        and node.op == source.op
        and (node.op == "placeholder" or node.target is source.target)
    )


def _alike(source: Node, node: Node) -> bool:
    values = [each.meta.get("val") for each in (source, node)]
    floats = all(
        isinstance(value, torch.Tensor) and value.is_floating_point()
        for value in values
    )
    return floats and _shapes(values)


def _shapes(values: list[Any]) -> bool:
    shapes = [
        tuple(size if isinstance(size, int) else None for size in value.shape)
        for value in values
    ]
    return shapes[0] == shapes[1]
