"""Spellings of operators that move values and that no annotator knows.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import Writer, tensor_of

_ATEN = torch.ops.aten
_EXPAND = _ATEN.expand.default
_TRANSPOSE = _ATEN.transpose.int
_CAT = _ATEN.cat.default
_FLIP = _ATEN.flip.default
_RESHAPE = _ATEN.reshape.default
_UNSQUEEZE = _ATEN.unsqueeze.default
#: Windows that are concatenated at most: each is an operator.
_MOST_WINDOWS = 64
_END = torch.iinfo(torch.int64).max


def _detach(write: Writer, x: Node) -> Node:
    return x


def _expand_as(write: Writer, x: Node, other: Node) -> Node:
    sizes = _sizes(write, other)
    return write(_EXPAND, x, sizes)


def _broadcast_to(write: Writer, x: Node, sizes: list[Any]) -> Node:
    return write(_EXPAND, x, sizes)


def _reshape_as(write: Writer, x: Node, other: Node) -> Node:
    sizes = _sizes(write, other)
    return write(_ATEN.reshape.default, x, sizes)


def _sizes(write: Writer, node: Node) -> list[Any]:
    value = tensor_of(node)
    assert value is not None
    return [write.size(node, dim) for dim in range(value.dim())]


def _transpose_last(write: Writer, x: Node) -> Node | None:
    value = tensor_of(x)
    # PyTorch takes a scalar for its own transpose.
    if value is None or value.dim() < 2:
        return None
    return write(_TRANSPOSE, x, -2, -1)


def _reverse(write: Writer, x: Node) -> Node:
    """Write the transpose that reverses all dimensions."""
    order = list(range(x.meta["val"].dim()))
    return write(_ATEN.permute.default, x, order[::-1])


def _transpose(
    write: Writer,
    x: Node,
    first: int,
    second: int,
) -> Node:
    return write(_TRANSPOSE, x, first, second)


def _narrow(
    write: Writer,
    x: Node,
    dim: int,
    start: int | Node,
    length: int | Node,
) -> Node | None:
    if not isinstance(start, int) or not isinstance(length, int):
        return None
    if start < 0 or length < 0:
        return None
    return _part(write, x, dim, start, start + length)


def _part(
    write: Writer,
    x: Node,
    dim: int,
    start: int,
    end: int,
) -> Node:
    return write(_ATEN.slice.Tensor, x, dim, start, end)


def _split_sections(
    write: Writer,
    x: Node,
    sections: int,
    dim: int,
) -> list[Node] | None:
    whole = x.meta["val"].shape[dim]
    if not isinstance(whole, int) or not isinstance(sections, int):
        return None
    size, longer = divmod(whole, sections)
    borders = [0]
    for index in range(sections):
        is_longer = index < longer
        borders.append(borders[-1] + size + is_longer)
    return _parts(write, x, dim, borders)


def _split_indices(
    write: Writer,
    x: Node,
    indices: list[Any],
    dim: int,
) -> list[Node] | None:
    whole = x.meta["val"].shape[dim]
    borders = [0, *indices, whole]
    for border in borders:
        if not isinstance(border, int):
            return None
    if sorted(borders) != borders:
        return None  # A negative index, or one behind the end.
    return _parts(write, x, dim, borders)


def _split_columns(
    write: Writer,
    x: Node,
    how: int | list[Any],
) -> list[Node] | None:
    """Write a split along the second dimension, or along the one there is."""
    return _split(write, x, how, min(1, _rank(x) - 1))


def _split_rows(write: Writer, x: Node, how: int | list[Any]) -> list[Node] | None:
    return _split(write, x, how, 0)


def _split_depth(write: Writer, x: Node, how: int | list[Any]) -> list[Node] | None:
    return _split(write, x, how, 2)


def _split(
    write: Writer,
    x: Node,
    how: int | list[Any],
    dim: int,
) -> list[Node] | None:
    if isinstance(how, int):
        return _split_sections(write, x, how, dim)
    return _split_indices(write, x, how, dim)


def _parts(
    write: Writer,
    x: Node,
    dim: int,
    borders: list[int],
) -> list[Node]:
    parts = []
    for start, end in pairwise(borders):
        part = _part(write, x, dim, start, end)
        parts.append(part)
    return parts


def _channel_shuffle(write: Writer, x: Node, groups: int) -> Node:
    grouped = write(_ATEN.unflatten.int, x, 1, [groups, -1])
    shuffled = write(_TRANSPOSE, grouped, 1, 2)
    return write(_ATEN.flatten.using_ints, shuffled, 1, 2)


def _roll(
    write: Writer,
    x: Node,
    shifts: list[Any],
    dims: list[int],
) -> Node | None:
    """Write a roll as a concatenation of the two parts that change places, a dimension after the other."""
    if len(shifts) != len(dims):
        return None  # Without dimensions it is one of the flattened tensor.
    sizes = [x.meta["val"].shape[dim] for dim in dims]
    for number in (*shifts, *sizes):
        if not isinstance(number, int):
            return None
    if 0 in sizes:
        return None
    for shift, dim, size in zip(shifts, dims, sizes, strict=True):
        border = -shift % size
        if not border:
            continue
        last = _part(write, x, dim, border, _END)
        first = _part(write, x, dim, 0, border)
        x = write(_ATEN.cat.default, [last, first], dim)
    return x


def _unfold(
    write: Writer,
    x: Node,
    dim: int,
    size: int,
    step: int,
) -> Node | None:
    """Write the windows along a dimension as a concatenation of slices, the places in a window last."""
    value = tensor_of(x)
    if value is None or not value.dim():
        return None
    dim = dim % value.dim()
    whole = value.shape[dim]
    if not isinstance(whole, int):
        return None
    starts = range(0, whole - size + 1, step)
    if not size or len(starts) > _MOST_WINDOWS:
        return None
    windows = []
    for start in starts:
        window = _part(write, x, dim, start, start + size)
        windows.append(write(_ATEN.unsqueeze.default, window, dim))
    joined = write(_ATEN.cat.default, windows, dim)
    order = [*range(dim + 1), *range(dim + 2, value.dim() + 1), dim + 1]
    return write(_ATEN.permute.default, joined, order)


def _diagonal(
    write: Writer,
    x: Node,
    offset: int,
    first: int,
    second: int,
) -> Node | None:
    """Write a diagonal as elements of the rows one behind the other, chosen by a constant index."""
    value = tensor_of(x)
    if value is None:
        return None
    first = first % value.dim()
    second = second % value.dim()
    rows = value.shape[first]
    columns = value.shape[second]
    if not isinstance(rows, int) or not isinstance(columns, int):
        return None
    places = torch.arange(rows * columns).view(rows, columns).diagonal(offset)
    if not places.numel():
        return None
    order = [dim for dim in range(value.dim()) if dim not in (first, second)]
    moved = write(_ATEN.permute.default, x, [*order, first, second])
    row = write(_ATEN.flatten.using_ints, moved, -2)
    index = write.constant(places.clone())
    return write(_ATEN.index_select.default, row, -1, index)


def _beside(write: Writer, values: list[Node]) -> Node:
    values = _of_rank(write, values, 1)
    dim = min(1, _rank(values[0]) - 1)
    return write(_CAT, values, dim)


def _below(write: Writer, values: list[Node]) -> Node:
    values = _of_rank(write, values, 2)
    return write(_CAT, values, 0)


def _behind(write: Writer, values: list[Node]) -> Node:
    rows = _of_rank(write, values, 2)
    planes = []
    for row in rows:
        if _rank(row) < 3:
            row = write(_UNSQUEEZE, row, 2)
        planes.append(row)
    return write(_CAT, planes, 2)


def _as_columns(write: Writer, values: list[Node]) -> Node:
    columns = []
    for value in values:
        if _rank(value) < 2:
            value = write(_RESHAPE, value, [-1, 1])
        columns.append(value)
    return write(_CAT, columns, 1)


def _of_rank(write: Writer, values: list[Node], rank: int) -> list[Node]:
    """Write values with as many dimensions before their own as they lack."""
    raised = []
    for value in values:
        while _rank(value) < rank:
            value = write(_UNSQUEEZE, value, 0)
        raised.append(value)
    return raised


def _rank(node: Node) -> int:
    rank: int = node.meta["val"].dim()
    return rank


def _rotate(
    write: Writer,
    x: Node,
    times: int,
    dims: list[int],
) -> Node:
    first, second = dims
    times = times % 4
    if times == 0:
        return write(_ATEN.clone.default, x)
    if times == 2:
        return write(_FLIP, x, [first, second])
    flipped = second if times == 1 else first
    x = write(_FLIP, x, [flipped])
    return write(_TRANSPOSE, x, first, second)


def _pad(
    write: Writer,
    x: Node,
    widths: list[Any],
    mode: str = "constant",
    value: float | None = None,
) -> Node | None:
    """Write a padding that is negative somewhere as a slice, and a padding of what is left."""
    if mode != "constant":
        return None
    for width in widths:
        if not isinstance(width, int):
            return None
    if all(width >= 0 for width in widths):
        return None
    dim = _rank(x)
    for before, behind in zip(widths[::2], widths[1::2], strict=True):
        dim -= 1
        if min(before, behind) >= 0:
            continue
        start = max(-before, 0)
        end = behind if behind < 0 else _END
        x = write(_ATEN.slice.Tensor, x, dim, start, end)
    positive = [max(width, 0) for width in widths]
    if not any(positive):
        return x
    return write(_ATEN.pad.default, x, positive, mode, value)


def _pad_with_constant(
    write: Writer,
    x: Node,
    widths: list[Any],
    value: float,
) -> Node | None:
    return _pad(write, x, widths, "constant", value)


VIEWS = {
    _ATEN.detach.default: _detach,
    _ATEN.alias.default: _detach,
    _ATEN.pad.default: _pad,
    _ATEN.constant_pad_nd.default: _pad_with_constant,
    _ATEN.hstack.default: _beside,
    _ATEN.vstack.default: _below,
    _ATEN.dstack.default: _behind,
    _ATEN.column_stack.default: _as_columns,
    _ATEN.rot90.default: _rotate,
    _ATEN.diagonal.default: _diagonal,
    _ATEN.diagonal_copy.default: _diagonal,
    _ATEN.unfold.default: _unfold,
    _ATEN.expand_as.default: _expand_as,
    _ATEN.broadcast_to.default: _broadcast_to,
    _ATEN.reshape_as.default: _reshape_as,
    _ATEN.mT.default: _transpose_last,
    _ATEN.mH.default: _transpose_last,
    _ATEN.adjoint.default: _transpose_last,
    _ATEN.numpy_T.default: _reverse,
    _ATEN.swapaxes.default: _transpose,
    _ATEN.swapdims.default: _transpose,
    _ATEN.narrow.default: _narrow,
    _ATEN.tensor_split.sections: _split_sections,
    _ATEN.tensor_split.indices: _split_indices,
    _ATEN.hsplit.int: _split_columns,
    _ATEN.hsplit.array: _split_columns,
    _ATEN.vsplit.int: _split_rows,
    _ATEN.vsplit.array: _split_rows,
    _ATEN.dsplit.int: _split_depth,
    _ATEN.dsplit.array: _split_depth,
    _ATEN.channel_shuffle.default: _channel_shuffle,
    _ATEN.roll.default: _roll,
}
