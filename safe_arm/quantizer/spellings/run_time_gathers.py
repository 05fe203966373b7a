"""Write a ``gather`` at places that only run time knows as a selection of rows.

Stock lowers one along the second of two or three dimensions, at places of 32 bits: ``argmax`` gives 64.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.island import arguments_by_name
from safe_arm.core.operators import VIEWS
from safe_arm.quantizer.graphs.constant_values import (
    ConstantValues,
    rewrite_with_constants,
)
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    has_dtype,
    is_call,
    is_float32,
    moved_from,
    replace_node,
    static_sizes,
)

_ATEN = torch.ops.aten
_GATHERS = (_ATEN.gather.default, _ATEN.take_along_dim.default)
_EXTREMES = (_ATEN.argmax.default, _ATEN.argmin.default)
_RESHAPE = _ATEN.reshape.default
#: Largest number of elements that are counted in 32 bits.
_LARGEST = torch.iinfo(torch.int32).max


def gather_at_run_time(model: GraphModule) -> None:
    """Write each ``gather`` and ``take_along_dim`` as a selection, at integers of 32 bits or the index of an extreme.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_with_constants(model, _gather)


def _gather(node: Node, values: ConstantValues) -> bool:
    """Write one operator as a selection, and tell whether it was."""
    if node.target not in _GATHERS:
        return False
    x, dim, index, wraps = _arguments(node)
    shape = static_sizes(x)
    if not shape or not is_float32(x):
        return False
    if math.prod(shape) > _LARGEST:
        return False
    is_constant = values.of(index) is not None
    if is_constant and not wraps:
        return False
    if not is_constant and not is_narrow(index):
        return False
    at = static_sizes(index)
    if at is None:
        return False
    if _is_stock(node, shape, index):
        return False
    if dim is None:
        write = Writer(node)
        x = write(_RESHAPE, x, [-1])
        index = write(_RESHAPE, index, [-1])
        dim = 0
    elif len(at) != len(shape):
        return False
    selected = _selected(node, x, dim % len(shape), index, wraps)
    replace_node(node, selected)
    return True


def _arguments(node: Node) -> tuple[Any, Any, Any, bool]:
    """Return what is indexed, the dimension, the index, and whether places below zero count from the end."""
    if node.target is _ATEN.gather.default:
        x, dim, index, _ = arguments_by_name(node).values()
        return x, dim, _plain(index), False
    x, index, dim = arguments_by_name(node).values()
    index = _plain(index)
    wraps = moved_from(index).target not in _EXTREMES
    return x, dim, index, wraps


def without_cast(index: Node) -> Node:
    """Return an index without a cast from 32 bits."""
    if is_call(index, _ATEN.to.dtype):
        narrow = index.args[0]
        if isinstance(narrow, Node) and has_dtype(narrow, torch.int32):
            return narrow
    return index


def _plain(index: Node) -> Node:
    """Return an index without a cast from 32 bits, that of an extreme without a remainder that leaves it as it is."""
    index = without_cast(index)
    if not is_call(index, _ATEN.remainder.Scalar):
        return index
    place, size = index.args
    if not isinstance(place, Node) or not isinstance(size, int):
        return index
    extreme = moved_from(place, VIEWS)
    if extreme.target not in _EXTREMES:
        return index
    source, dim, _ = arguments_by_name(extreme).values()
    sizes = static_sizes(source)
    if sizes is None:
        return index
    count = math.prod(sizes)
    if dim is not None:
        count = sizes[dim]
    if count <= size:
        return place
    return index


def is_narrow(index: Node) -> bool:
    """Tell whether 32 bits hold an index."""
    if has_dtype(index, torch.int32):
        return True
    return moved_from(index).target in _EXTREMES


def _is_stock(node: Node, shape: list[int], index: Node) -> bool:
    """Tell whether stock lowers a ``gather``."""
    if node.target is not _ATEN.gather.default:
        return False
    if not has_dtype(index, torch.int32):
        return False
    if len(shape) not in (2, 3) or node.args[1] not in (1, 1 - len(shape)):
        return False
    at = index.meta["val"].shape
    return at[0] == shape[0] and list(at[2:]) == shape[2:]


def _selected(
    node: Node,
    x: Node,
    dim: int,
    index: Node,
    wraps: bool,
) -> Node:
    """Write the elements at places along a dimension, or the rows where all elements of one have the same place.

    Args:
        node: the operator; its result has the sizes of what is selected.
        x: what it selects from.
        dim: the dimension, counted from the first.
        index: the places.
        wraps: whether places below zero count from the end.
    """
    write = Writer(node)
    picked = list(node.meta["val"].shape)
    shape = list(x.meta["val"].shape)
    index, rank = _unrepeated(index, dim, shape)
    at = shape[:rank]
    if not has_dtype(index, torch.int32):
        index = write(_ATEN.to.dtype, index, torch.int32)
    offset = write.constant(_offset(at, dim, picked), "offset")
    step = math.prod(at[dim + 1 :])
    size = shape[dim]
    places = write.compute(
        _places,
        [
            index,
            offset,
            size,
            step,
            wraps,
        ],
    )
    rows = write(_RESHAPE, x, [-1, *shape[rank:]])
    selected = write(_ATEN.index_select.default, rows, 0, places)
    return write(_RESHAPE, selected, picked)


def _unrepeated(
    index: Node,
    dim: int,
    shape: list[int],
) -> tuple[Node, int]:
    """Return an index without the last dimensions that only repeat it, and how many others it has.

    Args:
        index: the places.
        dim: the dimension that they are places of.
        shape: the sizes of what is indexed.
    """
    rank = len(shape)
    if not is_call(index, _ATEN.expand.default):
        return index, rank
    source: Any = index.args[0]
    before = list(source.meta["val"].shape)
    behind = list(index.meta["val"].shape)
    while rank > dim + 1 and before[-1:] == [1] and behind[-1] == shape[rank - 1]:
        before.pop()
        behind.pop()
        rank -= 1
    if rank == len(shape) or before != behind:
        return index, len(shape)
    write = Writer(index)
    return write(_RESHAPE, source, before), rank


def _offset(
    shape: list[int],
    dim: int,
    picked: list[int],
) -> Tensor:
    """Return the first element of the line along a dimension that each place is on, all counted through a value."""
    offset = torch.zeros([1] * len(shape), dtype=torch.int32)
    for place, size in enumerate(shape):
        if place == dim or size == 1:
            continue
        sizes = [1] * len(shape)
        sizes[place] = -1
        step = math.prod(shape[place + 1 :])
        end = picked[place]
        line = torch.arange(end, dtype=torch.int32)
        offset = offset + step * line.reshape(sizes)
    return offset


def _places(
    index: Tensor,
    offset: Tensor,
    size: int,
    step: int,
    wraps: bool,
) -> Tensor:
    """Count places along a dimension through all of a value."""
    if wraps:
        index = torch.where(index < 0, index + size, index)
    if step > 1:
        index = index * step
    if offset.numel() > 1:
        index = index + offset
    return index.reshape(-1)
