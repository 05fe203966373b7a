"""Pools, and what else looks through a window, that no annotator knows, in terms of operators that one does.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from safe_arm.quantizer.graphs.graph_edits import is_static, pair

_ATEN = torch.ops.aten
#: The dimension that a sequence is given to be an image.
_ROWS = -2
#: More windows than these are not cut out one by one.
_MOST_WINDOWS = 16


def _adaptive_max_pool2d(x: Tensor, counts: list[int]) -> list[Tensor] | None:
    """Return the maxima without their places."""
    window = window_of(x, counts)
    if window is not None:
        return [_ATEN.max_pool2d(x, window, window)]
    if x.dim() != 4 or not _are_few(x.shape[2:], counts):
        return None
    rows = _largest_along(x, _ROWS, counts[0])
    return [_largest_along(rows, -1, counts[1])]


def _adaptive_max_pool1d(x: Tensor, counts: list[int]) -> list[Tensor] | None:
    window = window_of(x, counts)
    if window is not None:
        return [_max_pool1d(x, window, window, [0], [1], False)]
    if x.dim() != 3 or not _are_few(x.shape[2:], counts):
        return None
    image = x.unsqueeze(_ROWS)
    return [_largest_along(image, -1, counts[0]).squeeze(_ROWS)]


def _are_few(sizes: Sequence[int], counts: list[int]) -> bool:
    """Tell whether all windows can be cut out, and none is empty."""
    for size in sizes:
        if not isinstance(size, int) or not size:
            return False
    if min(counts) < 1:
        return False
    return max(counts) <= _MOST_WINDOWS


def _largest_along(x: Tensor, dim: int, count: int) -> Tensor:
    """Return the maxima of windows of rows or columns, which overlap where the count does not divide their number."""
    size = x.shape[dim]
    windows = []
    for place in range(count):
        start = place * size // count
        behind = (place + 1) * size
        end = -(-behind // count)
        part = _ATEN.slice(x, dim, start, end)
        sides = [1, 1]
        sides[dim] = end - start
        windows.append(_ATEN.max_pool2d(part, sides, [1, 1]))
    return torch.cat(windows, dim)


def window_of(x: Tensor, counts: list[int]) -> list[int] | None:
    """Return the sides of equal windows that cover an image, so many along each dimension; None if there are none."""
    if x.dim() != len(counts) + 2:
        return None
    window = []
    for whole, count in zip(x.shape[2:], counts, strict=True):
        if not isinstance(whole, int) or not whole or not count:
            return None
        side, rest = divmod(whole, count)
        if rest:
            return None
        window.append(side)
    return window


def _max_pool1d(
    x: Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    rounds_up: bool,
) -> Tensor:
    image = x.unsqueeze(_ROWS)
    sides = [1, *kernel], [1, *(stride or kernel)], [0, *padding], [1, *dilation]
    return _ATEN.max_pool2d(image, *sides, rounds_up).squeeze(_ROWS)


def _adaptive_avg_pool1d(x: Tensor, counts: list[int]) -> Tensor:
    if list(counts) == [1]:
        return x.mean([-1], True)
    image = x.unsqueeze(_ROWS)
    return _ATEN.adaptive_avg_pool2d(image, [1, *counts]).squeeze(_ROWS)


def _adaptive_avg_pool2d(x: Tensor, counts: list[int]) -> Tensor | None:
    """Return the means of equal windows of a dynamic batch; stock cuts each window out, and delegates no such slice."""
    window = window_of(x, counts)
    if window is None or is_static(x):
        return None
    return F.avg_pool2d(x, window, window)


def _avg_pool2d(
    x: Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    rounds_up: bool,
    *how: bool | int | None,
) -> Tensor | None:
    """Return means of windows whose padding has a number for each side; stock unpacks two."""
    if len(padding) != 1:
        return None
    sides = pair(kernel), pair(stride or kernel), pair(padding)
    return _ATEN.avg_pool2d(x, *sides, rounds_up, *how)


def unfold_columns(
    x: Tensor,
    kernel: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> Tensor | None:
    """Return the columns of an image by a convolution of each channel: every kernel picks one place of the window."""
    if x.dim() != 4:
        return None
    channels, rows, columns = x.shape[1], *pair(kernel)
    if not isinstance(channels, int) or not channels:
        return None
    places = torch.eye(rows * columns).view(-1, 1, rows, columns)
    weight = places.repeat(channels, 1, 1, 1)
    how = pair(stride), pair(padding), pair(dilation), channels
    return F.conv2d(x, weight, None, *how).flatten(2)


POOLS = {
    _ATEN.im2col.default: unfold_columns,
    _ATEN.adaptive_max_pool2d.default: _adaptive_max_pool2d,
    _ATEN.adaptive_max_pool1d.default: _adaptive_max_pool1d,
    _ATEN.max_pool1d.default: _max_pool1d,
    _ATEN.adaptive_avg_pool1d.default: _adaptive_avg_pool1d,
    _ATEN.adaptive_avg_pool2d.default: _adaptive_avg_pool2d,
    _ATEN.avg_pool2d.default: _avg_pool2d,
}
