"""Elements at places that are constant, written as slices that are concatenated or as rows that are selected.

Stock takes an index of the first dimensions and a ``gather`` along the second; any other is left on the CPU and cuts
the net: swapped channels, the pairs of a recommender's features, the neighbours of a point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.quantizer.graphs.constant_values import ConstantWriter
from safe_arm.quantizer.spellings.spelled_scatters import (
    is_alike,
    line_of,
    places_in_whole,
)

_ATEN = torch.ops.aten
_RESHAPE = _ATEN.reshape.default
#: Dtypes of an index; of others, an index is a mask.
_NUMBERS = (torch.int64, torch.int32)
#: Slices that are concatenated at most. More of them are selected as rows, which an Ethos-U55 cannot.
_MOST_SLICES = 8


def _index(
    write: ConstantWriter,
    x: Node,
    indices: list[Node | None],
) -> Node | None:
    """Write an index whose first dimension is taken whole."""
    first = 0
    while first < len(indices) and indices[first] is None:
        first += 1
    given = indices[first:]
    if first == 0 or None in given:
        return None  # Where dimensions between are taken whole, what is indexed is moved to the front.
    shape = list(x.meta["val"].shape)
    end = first + len(given)
    sizes = shape[first:end]
    places = _places_in_row(write, given, sizes)
    if places is None:
        return None
    before = shape[:first]
    behind = shape[end:]
    if len(given) > 1:
        row = math.prod(sizes)
        x = write(_RESHAPE, x, [*before, row, *behind])
    picked = _picked(write, x, first, places.flatten())
    if places.dim() == 1:
        return picked
    return write(_RESHAPE, picked, [*before, *places.shape, *behind])


def _places_in_row(
    write: ConstantWriter,
    indices: list[Node | None],
    sizes: list[int],
) -> Tensor | None:
    """Return the places that indices of several dimensions name, counted through those dimensions."""
    row = torch.zeros((), dtype=torch.int64)
    for index, size in zip(indices, sizes, strict=True):
        places = _counted(write.value_of(index), size)
        if places is None:
            return None
        row = row * size + places
    return row


def _counted(places: Tensor | None, size: object) -> Tensor | None:
    """Return places counted from the start of a dimension; None if they are no known numbers of it."""
    if places is None or not isinstance(size, int):
        return None
    if places.dtype not in _NUMBERS or not places.numel():
        return None
    places = places.long()
    lowest, highest = places.aminmax()
    if lowest < -size or highest >= size:
        return None
    return places.remainder(size)


def _picked(
    write: ConstantWriter,
    x: Node,
    dim: int,
    places: Tensor,
) -> Node:
    """Write the elements at places along a dimension."""
    runs = _runs(places.tolist())
    if len(runs) > _MOST_SLICES:
        return write(_ATEN.index_select.default, x, dim, write.constant(places))
    slices = []
    for start, end in runs:
        slices.append(write(_ATEN.slice.Tensor, x, dim, start, end))
    if len(slices) == 1:
        return slices[0]
    return write(_ATEN.cat.default, slices, dim)


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Return the borders of the stretches in which each place is the next."""
    runs = []
    start = end = places[0]
    for place in places:
        if place != end:
            runs.append((start, end))
            start = place
        end = place + 1
    runs.append((start, end))
    return runs


def _gather(
    write: ConstantWriter,
    x: Node,
    dim: int,
    index: Node,
    sparse_grad: bool,
) -> Node | None:
    """Write a ``gather`` of other dimensions than stock takes."""
    value = x.meta["val"]
    rank = value.dim()
    if not rank:
        return None
    dim = dim % rank
    if dim == 1 and rank < 4:
        return None
    places = _counted(write.value_of(index), value.shape[dim])
    if places is None:
        return None
    line = line_of(places, dim)
    if line is not None and is_alike(places, value, dim):
        return _picked(write, x, dim, line)
    whole = places_in_whole(places, value, dim)
    return _picked_anywhere(write, x, whole, places.shape)


def _take(
    write: ConstantWriter,
    x: Node,
    index: Node,
) -> Node | None:
    size = x.meta["val"].numel()
    places = _counted(write.value_of(index), size)
    if places is None:
        return None
    return _picked_anywhere(write, x, places.flatten(), places.shape)


def _picked_anywhere(
    write: ConstantWriter,
    x: Node,
    places: Tensor,
    shape: torch.Size,
) -> Node:
    """Write the elements at places that are counted through all of a value."""
    flat = write(_RESHAPE, x, [-1])
    picked = _picked(write, flat, 0, places)
    return write(_RESHAPE, picked, list(shape))


def _index_select(
    write: ConstantWriter,
    x: Node,
    dim: int,
    index: Node,
) -> Node | None:
    """Write a selection of few stretches as slices."""
    value = x.meta["val"]
    if not value.dim():
        return None
    places = _counted(write.value_of(index), value.shape[dim])
    if places is None:
        return None
    places = places.flatten()
    runs = _runs(places.tolist())
    if len(runs) > _MOST_SLICES:
        return None
    return _picked(write, x, dim, places)


INDICES: dict[Any, Callable[..., Node | None]] = {
    _ATEN.index.Tensor: _index,
    _ATEN.index_select.default: _index_select,
    _ATEN.gather.default: _gather,
    _ATEN.take.default: _take,
}
