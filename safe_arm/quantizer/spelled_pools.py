"""Spellings of pools that no annotator knows."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import Writer, tensor_of

_ATEN = torch.ops.aten
Arguments = dict[str, Any]
#: The dimension that a sequence is given to be an image.
_ROWS = -2


def _adaptive_max_pool2d(write: Writer, arguments: Arguments) -> list[Node] | None:
    x = arguments["self"]
    window = _window(x, arguments["output_size"])
    if window is None:
        return None
    return [write(_ATEN.max_pool2d.default, x, window, window)]


def _adaptive_max_pool1d(write: Writer, arguments: Arguments) -> list[Node] | None:
    x = arguments["self"]
    window = _window(x, arguments["output_size"])
    if window is None:
        return None
    window = [1, *window]
    image = write(_ATEN.unsqueeze.default, x, _ROWS)
    pooled = write(_ATEN.max_pool2d.default, image, window, window)
    return [write(_ATEN.squeeze.dim, pooled, _ROWS)]


def _window(x: Node, sizes: list[int]) -> list[int] | None:
    """Return the sides of equal windows that cover an image, so many along each dimension; None if there are none."""
    value = tensor_of(x)
    if value is None or value.dim() != len(sizes) + 2:
        return None
    window = []
    for whole, count in zip(value.shape[2:], sizes, strict=True):
        if not isinstance(whole, int) or not whole:
            return None
        if not isinstance(count, int) or not count or whole % count:
            return None
        window.append(whole // count)
    return window


def _max_pool1d(write: Writer, arguments: Arguments) -> Node:
    x = arguments["self"]
    kernel = arguments["kernel_size"]
    image = write(_ATEN.unsqueeze.default, x, _ROWS)
    pooled = write(
        _ATEN.max_pool2d.default,
        image,
        [1, *kernel],
        [1, *(arguments["stride"] or kernel)],
        [0, *arguments["padding"]],
        [1, *arguments["dilation"]],
        arguments["ceil_mode"],
    )
    return write(_ATEN.squeeze.dim, pooled, _ROWS)


def _avg_pool1d(write: Writer, arguments: Arguments) -> Node:
    x = arguments["self"]
    kernel = arguments["kernel_size"]
    image = write(_ATEN.unsqueeze.default, x, _ROWS)
    pooled = write(
        _ATEN.avg_pool2d.default,
        image,
        [1, *kernel],
        [1, *(arguments["stride"] or kernel)],
        [0, *arguments["padding"]],
        arguments["ceil_mode"],
        arguments["count_include_pad"],
    )
    return write(_ATEN.squeeze.dim, pooled, _ROWS)


def _adaptive_avg_pool1d(write: Writer, arguments: Arguments) -> Node:
    x, sizes = arguments["self"], arguments["output_size"]
    if list(sizes) == [1]:
        return write(_ATEN.mean.dim, x, [-1], True)
    image = write(_ATEN.unsqueeze.default, x, _ROWS)
    pooled = write(_ATEN.adaptive_avg_pool2d.default, image, [1, *sizes])
    return write(_ATEN.squeeze.dim, pooled, _ROWS)


POOLS = {
    _ATEN.adaptive_max_pool2d.default: _adaptive_max_pool2d,
    _ATEN.adaptive_max_pool1d.default: _adaptive_max_pool1d,
    _ATEN.max_pool1d.default: _max_pool1d,
    _ATEN.avg_pool1d.default: _avg_pool1d,
    _ATEN.adaptive_avg_pool1d.default: _adaptive_avg_pool1d,
}
