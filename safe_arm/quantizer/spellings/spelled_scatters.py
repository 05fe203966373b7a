"""Sums over places that are constant, written as a linear layer whose weight picks what is summed.

The weight has a row for each place of the result, with a 1 for each value that is summed there. No annotator knows
``index_add``, ``scatter_add`` and the like, and a net that sums the messages of a graph's edges is cut at each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.quantizer.graphs.constant_values import ConstantWriter, filler_of

_ATEN = torch.ops.aten
_TRANSPOSE = _ATEN.transpose.int
#: Maximum number of elements of the weight.
_LARGEST = 1 << 20


def _index_add(
    write: ConstantWriter,
    x: Node,
    dim: int,
    index: Node,
    source: Node,
    factor: float,
) -> Node | None:
    places = write.value_of(index)
    if places is None or places.dim() != 1:
        return None
    if not x.meta["val"].dim():
        return None
    picked = _picked(places, x.meta["val"].shape[dim])
    if picked is None:
        return None
    summed = _along(write, source, dim, picked * factor)
    return _added(write, x, summed)


def _scatter_add(
    write: ConstantWriter, x: Node, dim: int, index: Node, source: Node
) -> Node | None:
    summed = _scattered(write, x, dim, index, source, is_mean=False)
    return _added(write, x, summed)


def _scatter_reduce(
    write: ConstantWriter,
    x: Node,
    dim: int,
    index: Node,
    source: Node,
    reduction: str,
    includes_x: bool,
) -> Node | None:
    if reduction == "sum" and includes_x:
        return _scatter_add(write, x, dim, index, source)
    if reduction not in ("sum", "mean") or not _is_zero(write, x):
        return None
    is_mean = reduction == "mean"
    if is_mean and includes_x:
        return None
    return _scattered(write, x, dim, index, source, is_mean)


def _scatter_number(
    write: ConstantWriter, x: Node, dim: int, index: Node, number: float
) -> Node | None:
    """Write a number that is put at one place of each row as a choice."""
    sizes = list(x.meta["val"].shape)
    if not sizes:
        return None
    size, sizes[dim] = sizes[dim], 1
    if list(index.meta["val"].shape) != sizes:
        return None
    condition = _is_at(write, index, dim, size)
    filler = filler_of(x)
    if filler is None:
        return write(_ATEN.where.ScalarSelf, condition, number, x)
    return write(_ATEN.where.Scalar, condition, number, filler)


def _one_hot(write: ConstantWriter, codes: Node, *cast: object) -> Node | None:
    """Write codes of one 1 and zeros, cast to floats, as a choice."""
    if codes.target is not _ATEN.one_hot.default or cast[:1] != (torch.float32,):
        return None
    index, classes = (*codes.args, -1)[:2]
    if not isinstance(classes, int) or classes < 1:
        return None
    places = write(_ATEN.unsqueeze.default, index, -1)
    return write(_ATEN.where.Scalar, _is_at(write, places, -1, classes), 1.0, 0.0)


def _is_at(write: ConstantWriter, index: Node, dim: int, size: int) -> Node:
    """Write which places of a dimension an index names; it is compared in 32 bits, because TOSA has no more."""
    shape = [1] * index.meta["val"].dim()
    shape[dim] = size
    numbers = write.constant(torch.arange(size, dtype=torch.int32).view(shape))
    return write(_ATEN.eq.Tensor, write(_ATEN.to.dtype, index, torch.int32), numbers)


def _index_put(
    write: ConstantWriter,
    x: Node,
    indices: list[Node | None],
    source: Node,
    accumulates: bool = False,
) -> Node | None:
    """Write a sum at the places of one dimension; the last index is theirs, and those before it are None."""
    *others, index = indices
    if not accumulates or any(other is not None for other in others):
        return None
    dim = len(others)
    places = write.value_of(index)
    if places is None or places.dim() != 1 or places.dtype == torch.bool:
        return None
    shape = list(x.meta["val"].shape)
    shape[dim] = len(places)
    if list(source.meta["val"].shape) != shape:
        return None
    return _index_add(write, x, dim, index, source, 1)  # type: ignore[arg-type]


def _scattered(
    write: ConstantWriter,
    x: Node,
    dim: int,
    index: Node,
    source: Node,
    is_mean: bool,
) -> Node | None:
    """Write what is summed at each place, or the mean of it."""
    places = write.value_of(index)
    value = x.meta["val"]
    if places is None or not value.dim() or places.shape != source.meta["val"].shape:
        return None
    dim = dim % value.dim()
    line = line_of(places, dim)
    if line is not None and is_alike(places, value, dim):
        return _along(write, source, dim, _weights(line, value.shape[dim], is_mean))
    whole = places_in_whole(places, value, dim)
    weights = _weights(whole, value.numel(), is_mean)
    if weights is None:
        return None
    row = write(_ATEN.reshape.default, source, [1, -1])
    summed = write(_ATEN.linear.default, row, write.constant(weights))
    return write(_ATEN.reshape.default, summed, list(value.shape))


def line_of(places: Tensor, dim: int) -> Tensor | None:
    """Return the places along one dimension; None if they are others elsewhere in the index."""
    if not places.numel():
        return None
    lines = places.movedim(dim, 0).reshape(places.shape[dim], -1)
    if not bool((lines == lines[:, :1]).all()):
        return None
    return lines[:, 0]


def is_alike(places: Tensor, value: Tensor, dim: int) -> bool:
    """Tell whether an index has all sizes of a value but one."""
    sizes = list(value.shape)
    sizes[dim] = places.shape[dim]
    return list(places.shape) == sizes


def places_in_whole(places: Tensor, value: Tensor, dim: int) -> Tensor:
    """Return the places that an index names, counted through the whole value."""
    whole = torch.arange(value.numel()).view(value.shape)
    for other, size in enumerate(places.shape):
        if other != dim:
            whole = whole.narrow(other, 0, size)
    return whole.gather(dim, places.long()).flatten()


def _weights(places: Tensor, size: int, is_mean: bool) -> Tensor | None:
    picked = _picked(places, size)
    if picked is None or not is_mean:
        return picked
    return picked / picked.sum(1, keepdim=True).clamp(min=1)


def _picked(places: Tensor, size: int) -> Tensor | None:
    """Return a matrix with a row for each place of a result, in which those are 1 that are summed there."""
    if not places.numel() or places.numel() * size > _LARGEST:
        return None
    rows = torch.arange(size).unsqueeze(1)
    return (places.unsqueeze(0) == rows).float()


def _along(
    write: ConstantWriter, source: Node, dim: int, weights: Tensor | None
) -> Node | None:
    """Write a linear layer along a dimension."""
    if weights is None:
        return None
    rank = source.meta["val"].dim()
    weight = write.constant(weights)
    if rank == 1:
        source = write(_ATEN.unsqueeze.default, source, 0)
        summed = write(_ATEN.linear.default, source, weight)
        return write(_ATEN.squeeze.dim, summed, 0)
    if dim % rank == rank - 1:
        return write(_ATEN.linear.default, source, weight)
    source = write(_TRANSPOSE, source, dim, -1)
    summed = write(_ATEN.linear.default, source, weight)
    return write(_TRANSPOSE, summed, dim, -1)


def _added(write: ConstantWriter, x: Node, summed: Node | None) -> Node | None:
    if summed is None or _is_zero(write, x):
        return summed
    return write(_ATEN.add.Tensor, x, summed)


def _is_zero(write: ConstantWriter, x: Node) -> bool:
    if filler_of(x) == 0:
        return True
    value = write.value_of(x)
    return value is not None and not bool(value.any())


SCATTERS: dict[Any, Callable[..., Node | None]] = {
    _ATEN.index_add.default: _index_add,
    _ATEN.scatter.value: _scatter_number,
    _ATEN.scatter_add.default: _scatter_add,
    _ATEN.scatter_reduce.two: _scatter_reduce,
    _ATEN.index_put.default: _index_put,
    _ATEN.to.dtype: _one_hot,
}
