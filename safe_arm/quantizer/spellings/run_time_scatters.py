"""Write a ``scatter`` of a few values at places that only run time knows as choices, as a gate of experts has it.

``zeros.scatter(1, scores.topk(2).indices, weights)`` has places of 64 bits, which no delegate takes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.island import arguments_by_name
from safe_arm.quantizer.graphs.constant_values import (
    ConstantValues,
    rewrite_with_constants,
)
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_float32,
    replace_node,
    static_sizes,
)
from safe_arm.quantizer.graphs.own_writes import functional_of
from safe_arm.quantizer.spellings.run_time_gathers import is_narrow, without_cast

_ATEN = torch.ops.aten
_ADDS = _ATEN.scatter_add.default
_SCATTERS = (_ATEN.scatter.src, _ATEN.scatter.value, _ADDS)
#: More places than these are not chosen one by one.
_MOST = 8


def scatter_at_run_time(model: GraphModule) -> None:
    """Write each ``scatter`` and ``scatter_add`` by a choice for each place that one row has.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_with_constants(model, _scatter)


def _scatter(node: Node, values: ConstantValues) -> bool:
    """Write one operator by choices, and tell whether it was."""
    target = functional_of(node) or node.target
    if target not in _SCATTERS:
        return False
    x, dim, index, source = arguments_by_name(node).values()
    if values.of(index) is not None or not is_float32(x):
        return False
    index = without_cast(index)
    if not is_narrow(index) or not _fits(x, dim, index, source):
        return False
    adds = target is _ADDS
    written = Writer(node).compute(_chosen, [x, dim, index, source, adds])
    replace_node(node, written)
    return True


def _fits(x: Node, dim: int, index: Node, source: Any) -> bool:
    """Tell whether each row of a value has a few places of its own, and whether each place has a value."""
    sizes = static_sizes(x)
    at = static_sizes(index)
    if not sizes or not at:
        return False
    if isinstance(source, Node) and static_sizes(source) != at:
        return False
    count = at[dim]
    if not 0 < count <= _MOST:
        return False
    rows = list(sizes)
    rows[dim] = count
    return rows == at


def _chosen(
    x: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor | float,
    adds: bool,
) -> Tensor:
    """Return a value that has others at places along a dimension, or sums with them."""
    sides = [1] * x.dim()
    sides[dim] = x.shape[dim]
    places = torch.arange(x.shape[dim], dtype=torch.int32).reshape(sides)
    index = index.to(torch.int32)
    for number in range(index.shape[dim]):
        end = number + 1
        is_here = places == _ATEN.slice(index, dim, number, end)
        value = source
        if isinstance(source, Tensor):
            value = _ATEN.slice(source, dim, number, end)
        if adds:
            summand = torch.where(is_here, value, 0.0)
            x = x + summand
        else:
            x = torch.where(is_here, value, x)
    return x
