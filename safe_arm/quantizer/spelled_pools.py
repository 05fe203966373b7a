"""Spellings of pools, and of what else looks through a window, that no annotator knows.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import Writer, pair, static_sizes, tensor_of

_ATEN = torch.ops.aten
_LARGEST = _ATEN.max_pool2d.default
_AVERAGE = _ATEN.avg_pool2d.default
#: The dimension that a sequence is given to be an image.
_ROWS = -2


def _adaptive_max_pool2d(
    write: Writer, x: Node, counts: list[int]
) -> list[Node] | None:
    window = _window(write, x, counts)
    if window is None:
        return None
    pooled = write(_LARGEST, x, window, window)
    return [pooled]


def _adaptive_max_pool1d(
    write: Writer, x: Node, counts: list[int]
) -> list[Node] | None:
    window = _window(write, x, counts)
    if window is None:
        return None
    image = _as_image(write, x)
    pooled = write(_LARGEST, image, [1, *window], [1, *window])
    sequence = _as_sequence(write, pooled)
    return [sequence]


def _window(write: Writer, x: Node, counts: list[int]) -> list[int] | None:
    """Return the sides of equal windows that cover an image, so many along each dimension.

    None if there are none, or if the places of the maxima are read.
    """
    value = tensor_of(x)
    if value is None or write.picks(1):
        return None
    if value.dim() != len(counts) + 2:
        return None
    window = []
    for whole, count in zip(value.shape[2:], counts, strict=True):
        if not isinstance(whole, int):
            return None
        if not whole or not count:
            return None
        side, rest = divmod(whole, count)
        if rest:
            return None
        window.append(side)
    return window


def _as_image(write: Writer, x: Node) -> Node:
    return write(_ATEN.unsqueeze.default, x, _ROWS)


def _as_sequence(write: Writer, image: Node) -> Node:
    return write(_ATEN.squeeze.dim, image, _ROWS)


def _max_pool1d(
    write: Writer,
    x: Node,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    rounds_up: bool,
) -> Node:
    pooled = write(
        _LARGEST,
        _as_image(write, x),
        [1, *kernel],
        [1, *(stride or kernel)],
        [0, *padding],
        [1, *dilation],
        rounds_up,
    )
    return _as_sequence(write, pooled)


def _avg_pool1d(
    write: Writer,
    x: Node,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    rounds_up: bool,
    counts_padding: bool,
) -> Node:
    pooled = write(
        _AVERAGE,
        _as_image(write, x),
        [1, *kernel],
        [1, *(stride or kernel)],
        [0, *padding],
        rounds_up,
        counts_padding,
    )
    return _as_sequence(write, pooled)


def _adaptive_avg_pool1d(write: Writer, x: Node, counts: list[int]) -> Node:
    if list(counts) == [1]:
        return write(_ATEN.mean.dim, x, [-1], True)
    image = _as_image(write, x)
    pooled = write(_ATEN.adaptive_avg_pool2d.default, image, [1, *counts])
    return _as_sequence(write, pooled)


def _avg_pool3d(
    write: Writer,
    x: Node,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    rounds_up: bool,
    counts_padding: bool,
    divisor: int | None,
) -> Node | None:
    """Write the means of boxes as those of their rows and columns, and of these along the depth."""
    shape = static_sizes(x)
    if shape is None or len(shape) != 5:
        return None
    if any(padding) or rounds_up or divisor is not None:
        return None
    batch, channels, depth, *_ = shape
    stride = _triple(stride or kernel)
    kernel = _triple(kernel)
    images = write(_ATEN.flatten.using_ints, x, 1, 2)
    images = write(_AVERAGE, images, kernel[1:], stride[1:])
    rows, columns = images.meta["val"].shape[2:]
    planes = write(_ATEN.reshape.default, images, [batch, channels, depth, -1])
    pooled = write(_AVERAGE, planes, [kernel[0], 1], [stride[0], 1])
    sizes = [batch, channels, -1, rows, columns]
    return write(_ATEN.reshape.default, pooled, sizes)


def _triple(sizes: list[int]) -> list[int]:
    """Return a size for the depth, one for rows and one for columns."""
    if len(sizes) == 1:
        return list(sizes) * 3
    return list(sizes)


def unfold_columns(
    write: Writer,
    x: Node,
    kernel: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> Node | None:
    """Write the columns of an image as a convolution of each channel: every kernel picks one place of the window."""
    value = tensor_of(x)
    if value is None or value.dim() != 4:
        return None
    channels, rows, columns = value.shape[1], *pair(kernel)
    if not isinstance(channels, int) or not channels:
        return None
    places = torch.eye(rows * columns).view(-1, 1, rows, columns)
    weight = write.constant(places.repeat(channels, 1, 1, 1))
    picked = write(
        _ATEN.conv2d.default,
        x,
        weight,
        None,
        pair(stride),
        pair(padding),
        pair(dilation),
        channels,
    )
    return write(_ATEN.flatten.using_ints, picked, 2)


POOLS = {
    _ATEN.im2col.default: unfold_columns,
    _ATEN.adaptive_max_pool2d.default: _adaptive_max_pool2d,
    _ATEN.adaptive_max_pool1d.default: _adaptive_max_pool1d,
    _ATEN.max_pool1d.default: _max_pool1d,
    _ATEN.avg_pool1d.default: _avg_pool1d,
    _ATEN.avg_pool3d.default: _avg_pool3d,
    _ATEN.adaptive_avg_pool1d.default: _adaptive_avg_pool1d,
}
