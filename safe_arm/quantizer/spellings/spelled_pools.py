"""Pools, and what else looks through a window, that no annotator knows, in terms of operators that one does.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from safe_arm.quantizer.graphs.graph_edits import is_static, pair

_ATEN = torch.ops.aten
#: The dimension that a sequence is given to be an image.
_ROWS = -2


def _adaptive_max_pool2d(x: Tensor, counts: list[int]) -> list[Tensor] | None:
    """Return the maxima without their places."""
    window = window_of(x, counts)
    if window is None:
        return None
    return [_ATEN.max_pool2d(x, window, window)]


def _adaptive_max_pool1d(x: Tensor, counts: list[int]) -> list[Tensor] | None:
    window = window_of(x, counts)
    if window is None:
        return None
    return [_max_pool1d(x, window, window, [0], [1], False)]


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
}
