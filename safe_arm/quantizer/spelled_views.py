"""Spellings of operators that move values and that no annotator knows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import Writer, tensor_of

_ATEN = torch.ops.aten
Arguments = dict[str, Any]
_LAST = torch.iinfo(torch.int64).max


def _expand_as(write: Writer, arguments: Arguments) -> Node:
    other = arguments["other"]
    return write(_ATEN.expand.default, arguments["self"], _sizes(write, other))


def _broadcast_to(write: Writer, arguments: Arguments) -> Node:
    return write(_ATEN.expand.default, arguments["self"], arguments["size"])


def _reshape_as(write: Writer, arguments: Arguments) -> Node:
    other = arguments["other"]
    return write(_ATEN.reshape.default, arguments["self"], _sizes(write, other))


def _sizes(write: Writer, node: Node) -> list[Any]:
    return [write.size(node, dim) for dim in range(_rank(node))]


def _rank(node: Node) -> int:
    value = tensor_of(node)
    assert value is not None
    return value.dim()


def _transpose_last(write: Writer, arguments: Arguments) -> Node:
    return write(_ATEN.transpose.int, arguments["self"], -2, -1)


def _swap_axes(write: Writer, arguments: Arguments) -> Node:
    axes = arguments["axis0"], arguments["axis1"]
    return write(_ATEN.transpose.int, arguments["self"], *axes)


def _swap_dims(write: Writer, arguments: Arguments) -> Node:
    dims = arguments["dim0"], arguments["dim1"]
    return write(_ATEN.transpose.int, arguments["self"], *dims)


def _narrow(write: Writer, arguments: Arguments) -> Node | None:
    x, dim = arguments["self"], arguments["dim"]
    start, length = arguments["start"], arguments["length"]
    if not isinstance(start, int) or not isinstance(length, int) or start < 0:
        return None
    return write(_ATEN.slice.Tensor, x, dim, start, start + length)


def _split_sections(write: Writer, arguments: Arguments) -> list[Node] | None:
    x, dim, sections = arguments["self"], arguments["dim"], arguments["sections"]
    whole = x.meta["val"].shape[dim]
    if not isinstance(whole, int) or not isinstance(sections, int):
        return None
    size, longer = divmod(whole, sections)
    sizes = [size + 1] * longer + [size] * (sections - longer)
    return _parts(write, x, dim, sizes)


def _split_indices(write: Writer, arguments: Arguments) -> list[Node] | None:
    x, dim, indices = arguments["self"], arguments["dim"], arguments["indices"]
    whole = x.meta["val"].shape[dim]
    borders = [0, *indices, whole]
    for border in borders:
        if not isinstance(border, int):
            return None
    if sorted(borders) != borders:
        return None  # A negative index, or one behind the end.
    sizes = [end - start for start, end in pairwise(borders)]
    return _parts(write, x, dim, sizes)


def _parts(write: Writer, x: Node, dim: int, sizes: list[int]) -> list[Node]:
    parts = []
    start = 0
    for size in sizes:
        parts.append(write(_ATEN.slice.Tensor, x, dim, start, start + size))
        start += size
    return parts


def _channel_shuffle(write: Writer, arguments: Arguments) -> Node:
    groups = write(_ATEN.unflatten.int, arguments["self"], 1, [arguments["groups"], -1])
    shuffled = write(_ATEN.transpose.int, groups, 1, 2)
    return write(_ATEN.flatten.using_ints, shuffled, 1, 2)


def _roll(write: Writer, arguments: Arguments) -> Node | None:
    """Write a roll as a concatenation of the two parts that change places, a dimension after the other."""
    x, shifts, dims = arguments["self"], arguments["shifts"], arguments["dims"]
    if len(shifts) != len(dims):
        return None  # Without dimensions it is one of the flattened tensor.
    sizes = [x.meta["val"].shape[dim] for dim in dims]
    for number in (*shifts, *sizes):
        if not isinstance(number, int) or number == 0:
            return None
    for shift, dim, size in zip(shifts, dims, sizes, strict=True):
        border = -shift % size
        if border:
            last = write(_ATEN.slice.Tensor, x, dim, border, _LAST)
            first = write(_ATEN.slice.Tensor, x, dim, 0, border)
            x = write(_ATEN.cat.default, [last, first], dim)
    return x


VIEWS = {
    _ATEN.expand_as.default: _expand_as,
    _ATEN.broadcast_to.default: _broadcast_to,
    _ATEN.reshape_as.default: _reshape_as,
    _ATEN.mT.default: _transpose_last,
    _ATEN.swapaxes.default: _swap_axes,
    _ATEN.swapdims.default: _swap_dims,
    _ATEN.narrow.default: _narrow,
    _ATEN.tensor_split.sections: _split_sections,
    _ATEN.tensor_split.indices: _split_indices,
    _ATEN.channel_shuffle.default: _channel_shuffle,
    _ATEN.roll.default: _roll,
}
