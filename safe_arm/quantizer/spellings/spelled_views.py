"""Operators that move values and that no annotator knows, in terms of operators that one does.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_ATEN = torch.ops.aten
#: Windows that are concatenated at most: each is an operator.
_MOST_WINDOWS = 64
_END = torch.iinfo(torch.int64).max


def _same(x: Tensor) -> Tensor:
    return x


def _channel_shuffle(x: Tensor, groups: int) -> Tensor:
    return x.unflatten(1, [groups, -1]).transpose(1, 2).flatten(1, 2)


def _roll(x: Tensor, shifts: list[Any], dims: list[int]) -> Tensor | None:
    """Return a roll as a concatenation of the two parts that change places, a dimension after the other.

    Without dimensions it is one of the flattened tensor.
    """
    if not dims:
        flat = _roll(x.flatten(), shifts, [0])
        return None if flat is None else flat.reshape(x.shape)
    if len(shifts) != len(dims):
        return None
    sizes = [x.shape[dim] for dim in dims]
    for number in (*shifts, *sizes):
        if not isinstance(number, int):
            return None
    if 0 in sizes:
        return None
    for shift, dim, size in zip(shifts, dims, sizes, strict=True):
        border = -shift % size
        if not border:
            continue
        last = _ATEN.slice(x, dim, border, _END)
        x = torch.cat([last, _ATEN.slice(x, dim, 0, border)], dim)
    return x


def _shift_to_middle(x: Tensor, dims: list[int] | None = None) -> Tensor | None:
    """Return a spectrum with its first entry in the middle."""
    return _roll_by(x, dims, lambda size: size // 2)


def _shift_from_middle(x: Tensor, dims: list[int] | None = None) -> Tensor | None:
    """Return a spectrum with the entry of its middle in the first place."""
    return _roll_by(x, dims, lambda size: -(size // 2))


def _roll_by(
    x: Tensor, dims: list[int] | None, shift_of: Callable[[Any], Any]
) -> Tensor | None:
    """Return a roll of some dimensions, all by default, each by what its size says."""
    if dims is None:
        dims = list(range(x.dim()))
    return _roll(x, [shift_of(x.shape[dim]) for dim in dims], dims) if dims else x


def _unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor | None:
    """Return the windows along a dimension as a concatenation of slices, the places in a window last."""
    if not x.dim():
        return None
    dim = dim % x.dim()
    whole = x.shape[dim]
    if not isinstance(whole, int):
        return None
    starts = range(0, whole - size + 1, step)
    if not size or len(starts) > _MOST_WINDOWS:
        return None
    windows = []
    for start in starts:
        window = _ATEN.slice(x, dim, start, start + size)
        windows.append(window.unsqueeze(dim))
    joined = torch.cat(windows, dim)
    return joined.permute([*range(dim + 1), *range(dim + 2, x.dim() + 1), dim + 1])


def _diagonal(x: Tensor, offset: int, first: int, second: int) -> Tensor | None:
    """Return a diagonal as elements of the rows one behind the other, chosen by a constant index."""
    first = first % x.dim()
    second = second % x.dim()
    rows = x.shape[first]
    columns = x.shape[second]
    if not isinstance(rows, int) or not isinstance(columns, int):
        return None
    numbers = range(rows * columns)
    places = [
        place for place in numbers if place % columns - place // columns == offset
    ]
    if not places:
        return None
    order = [dim for dim in range(x.dim()) if dim not in (first, second)]
    row = x.permute([*order, first, second]).flatten(-2)
    index = torch.arange(places[0], places[-1] + 1, columns + 1)
    return row.index_select(-1, index)


def _trace(x: Tensor) -> Tensor | None:
    diagonal = _diagonal(x, 0, 0, 1)
    return None if diagonal is None else diagonal.sum()


def _block_diagonal(blocks: list[Tensor]) -> Tensor | None:
    """Return blocks one below the other, each between zeros."""
    matrices = [torch.atleast_2d(block) for block in blocks]
    columns = [matrix.shape[1] for matrix in matrices]
    for size in columns:
        if not isinstance(size, int):
            return None
    rows = []
    before = 0
    for matrix, size in zip(matrices, columns, strict=True):
        behind = sum(columns) - before - size
        rows.append(F.pad(matrix, (before, behind)))
        before += size
    return torch.cat(rows)


def _chunk(x: Tensor, chunks: int, dim: int) -> list[Tensor] | None:
    return _slices(x, dim, x.chunk(chunks, dim))


def _split(x: Tensor, size: int | list[int], dim: int) -> list[Tensor] | None:
    return _slices(x, dim, x.split(size, dim))


def _slices(x: Tensor, dim: int, parts: Sequence[Tensor]) -> list[Tensor] | None:
    """Return parts that follow each other as slices: what a value is made of is seen through these."""
    slices = []
    start = 0
    for part in parts:
        size = part.shape[dim]
        if not isinstance(size, int):
            return None
        slices.append(_ATEN.slice(x, dim, start, start + size))
        start += size
    return slices


def _unbind(x: Tensor, dim: int) -> list[Tensor] | None:
    size = x.shape[dim]
    if not isinstance(size, int):
        return None
    return [x.select(dim, place) for place in range(size)]


def _diagonal_matrix(x: Tensor, offset: int, first: int, second: int) -> Tensor | None:
    """Return a matrix of a diagonal and zeros: each element is followed by a row of zeros and one more."""
    count = x.shape[-1]
    if not isinstance(count, int):
        return None
    side = count + abs(offset)
    rows = F.pad(x.unsqueeze(-1), (0, side)).flatten(-2)
    before = offset if offset >= 0 else -offset * side
    # The last element has fewer zeros behind it, or more.
    row = F.pad(rows, (before, side * abs(offset)))
    row = _ATEN.slice(row, -1, 0, side * side)
    matrix = row.unflatten(-1, (side, side))
    return matrix.movedim((-2, -1), (first, second))


def _pad(
    x: Tensor, widths: list[Any], mode: str = "constant", value: float | None = None
) -> Tensor | None:
    """Return a padding that is negative somewhere as a slice, and a padding of what is left."""
    if mode != "constant":
        return None
    for width in widths:
        if not isinstance(width, int):
            return None
    if all(width >= 0 for width in widths):
        return None
    dim = x.dim()
    for before, behind in zip(widths[::2], widths[1::2], strict=True):
        dim -= 1
        if min(before, behind) >= 0:
            continue
        start = max(-before, 0)
        end = behind if behind < 0 else _END
        x = _ATEN.slice(x, dim, start, end)
    positive = [max(width, 0) for width in widths]
    if not any(positive):
        return x
    return F.pad(x, positive, mode, value)


def _pad_with_constant(x: Tensor, widths: list[Any], value: float) -> Tensor | None:
    return _pad(x, widths, "constant", value)


def _upper(x: Tensor, diagonal: int) -> Tensor:
    """Return what is above a diagonal as what is below it on the other side, which stock knows."""
    return x.transpose(-1, -2).tril(-diagonal).transpose(-1, -2)


VIEWS = {
    _ATEN.detach.default: _same,
    _ATEN.alias.default: _same,
    _ATEN.pad.default: _pad,
    _ATEN.constant_pad_nd.default: _pad_with_constant,
    _ATEN.rot90.default: torch._refs.rot90,
    _ATEN.diagonal.default: _diagonal,
    _ATEN.diagonal_copy.default: _diagonal,
    _ATEN.diag_embed.default: _diagonal_matrix,
    _ATEN.trace.default: _trace,
    _ATEN.block_diag.default: _block_diagonal,
    _ATEN.unfold.default: _unfold,
    _ATEN.channel_shuffle.default: _channel_shuffle,
    _ATEN.native_channel_shuffle.default: _channel_shuffle,
    _ATEN.chunk.default: _chunk,
    _ATEN.split.Tensor: _split,
    _ATEN.split.sizes: _split,
    _ATEN.split_with_sizes.default: _split,
    _ATEN.unbind.int: _unbind,
    _ATEN.roll.default: _roll,
    _ATEN.fft_fftshift.default: _shift_to_middle,
    _ATEN.fft_ifftshift.default: _shift_from_middle,
    _ATEN.triu.default: _upper,
}
