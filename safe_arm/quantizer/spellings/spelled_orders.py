"""The few largest or smallest elements in their order, each found as an extreme of those that are left.

A gate picks two experts by ``topk``, and a median filter takes the fifth of nine: TOSA has no operator for an order.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.island import arguments_by_name, graph_modules
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_float32,
    replace_results,
    rewrite_nodes,
)

_ATEN = torch.ops.aten
#: More extremes than these are not found one by one.
_MOST = 8
_LIMITS = torch.finfo(torch.float32)


def write_orders(model: GraphModule) -> None:
    """Write ``topk``, ``sort``, ``kthvalue`` and ``median`` by at most eight extremes.

    Of elements that are equal the first is taken first. PyTorch takes any of them, unless a sort is stable.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        rewrite_nodes(module, _write_order)


def reads_places(model: GraphModule) -> bool:
    """Tell whether a graph reads the place of an extreme: which of equal elements it is depends on who computes it."""
    for module in graph_modules(model):
        for node in module.graph.nodes:
            if node.target in _PLACES:
                return True
            if node.target in _ORDERS and _is_read(node, 1):
                return True
    return False


def _is_read(node: Node, place: int) -> bool:
    """Tell whether one of several results is read."""
    for pick in node.users:
        if pick.target is operator.getitem and pick.args[1] == place:
            return bool(pick.users)
    return False


def _write_order(node: Node) -> bool:
    """Write one operator by extremes, and tell whether it was."""
    target: Any = node.target
    if target not in _ORDERS:
        return False
    arguments = list(arguments_by_name(node).values())
    if not is_float32(arguments[0]):
        return False
    written = Writer(node).compute(_ORDERS[target], arguments)
    return written is not None and replace_results(node, written)


def _topk(
    x: Tensor,
    count: int,
    dim: int,
    is_largest: bool,
    is_sorted: bool,
) -> list[Tensor] | None:
    return _joined(x, dim, count, is_largest)


def _sort(x: Tensor, dim: int, is_descending: bool) -> list[Tensor] | None:
    size = _size(x, dim)
    if size is None:
        return None
    return _joined(x, dim, size, is_descending)


def _sorted(x: Tensor) -> Tensor | None:
    found = _sort(x, 0, False)
    return None if found is None else found[0]


def _places(x: Tensor, dim: int, is_descending: bool) -> Tensor | None:
    found = _sort(x, dim, is_descending)
    return None if found is None else found[1]


def _stable_places(
    x: Tensor,
    is_stable: bool,
    dim: int,
    is_descending: bool,
) -> Tensor | None:
    return _places(x, dim, is_descending)


def _stable_sort(
    x: Tensor,
    is_stable: bool,
    dim: int,
    is_descending: bool,
) -> list[Tensor] | None:
    return _sort(x, dim, is_descending)


def _median(x: Tensor, dim: int, keepdim: bool) -> list[Tensor] | None:
    """Return the lower one of the two in the middle, as PyTorch does."""
    size = _size(x, dim)
    if size is None:
        return None
    return _kth(x, (size + 1) // 2, dim, keepdim)


def _median_of_all(x: Tensor) -> Tensor | None:
    median = _median(x.flatten(), 0, False)
    if median is None:
        return None
    return median[0]


def _kth(x: Tensor, k: int, dim: int, keepdim: bool) -> list[Tensor] | None:
    """Return the k-th smallest element and its place, found from the end that is nearer."""
    size = _size(x, dim)
    if size is None:
        return None
    behind = size - k + 1
    is_largest = behind < k
    found = _extremes(x, dim, min(k, behind), is_largest)
    if found is None:
        return None
    value, place = found[-1]
    place = place.to(torch.int64)
    if keepdim:
        return [value, place]
    return [value.squeeze(dim), place.squeeze(dim)]


def _joined(
    x: Tensor,
    dim: int,
    count: int,
    is_largest: bool,
) -> list[Tensor] | None:
    """Return so many extremes along a dimension, and their places."""
    found = _extremes(x, dim, count, is_largest)
    if found is None:
        return None
    values = [value for value, _ in found]
    places = [place for _, place in found]
    return [torch.cat(values, dim), torch.cat(places, dim).to(torch.int64)]


def _extremes(
    x: Tensor,
    dim: int,
    count: int,
    is_largest: bool,
) -> list[tuple[Tensor, Tensor]] | None:
    """Return so many extremes along a dimension, each with its place as an integer of 32 bits.

    Those that were found are masked by a number that no element is beyond. Masks leave the domain to the elements.
    """
    size = _size(x, dim)
    if size is None or not 0 < count <= min(size, _MOST):
        return None
    sides = [1] * x.dim()
    sides[dim] = size
    places = torch.arange(size, dtype=torch.int32).reshape(sides)
    left = x
    is_found = None
    found = []
    for _ in range(count):
        value, place = _extreme(left, dim, is_largest)
        found.append((value, place))
        is_here = places == place
        is_found = is_here if is_found is None else is_found.logical_or(is_here)
        left = x.masked_fill(is_found, _LIMITS.min if is_largest else _LIMITS.max)
    return found


def _extreme(x: Tensor, dim: int, is_largest: bool) -> tuple[Tensor, Tensor]:
    """Return the first extreme along a dimension, which stays, and its place."""
    if is_largest:
        value = x.amax(dim, keepdim=True)
        place = x.argmax(dim, keepdim=True)
    else:
        value = x.amin(dim, keepdim=True)
        place = x.argmin(dim, keepdim=True)
    return value, place.to(torch.int32)


def _size(x: Tensor, dim: int) -> int | None:
    """Return the size of a dimension; None if only run time knows it, or if there is no dimension."""
    if not x.dim():
        return None
    size = x.shape[dim]
    return size if isinstance(size, int) else None


#: The spellings of operators that return places alone.
_PLACES: dict[Any, Any] = {
    _ATEN.argsort.default: _places,
    _ATEN.argsort.stable: _stable_places,
}
#: All spellings by their operators.
_ORDERS: dict[Any, Any] = {
    _ATEN.topk.default: _topk,
    _ATEN.sort.default: _sort,
    _ATEN.sort.stable: _stable_sort,
    _ATEN.kthvalue.default: _kth,
    _ATEN.median.default: _median_of_all,
    _ATEN.median.dim: _median,
    _ATEN.msort.default: _sorted,
    **_PLACES,
}
