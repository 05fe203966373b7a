"""Spellings of resizes that no annotator knows.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.quantizer.graphs.graph_edits import Writer, is_static

_ATEN = torch.ops.aten
_OF_CENTRES = (
    _ATEN._upsample_nearest_exact1d.vec,
    _ATEN._upsample_nearest_exact2d.vec,
)
#: Resizes of rows and columns, one after the other; the smoothed ones take the mean of what falls into a pixel.
_SEPARABLE = (
    _ATEN.upsample_bicubic2d.vec,
    _ATEN._upsample_bicubic2d_aa.vec,
    _ATEN._upsample_bilinear2d_aa.vec,
)
_TRANSPOSE = _ATEN.transpose.int
_LINEAR = _ATEN.linear.default
_SELECT = _ATEN.index_select.default
#: Maximum length of a side that is resized by a matrix.
_LONGEST = 1024
#: The dimension that a sequence is given to be an image.
_ROWS = -2
#: Number of dimensions of a batch of images.
_IMAGE = 4


def _nearest(
    write: Writer,
    x: Node,
    sizes: list[int] | None,
    scales: list[float] | None,
) -> Node:
    image = write(_ATEN.unsqueeze.default, x, _ROWS)
    resized = write(
        _ATEN.upsample_nearest2d.vec,
        image,
        _with_row(sizes),
        _with_row(scales),
    )
    return write(_ATEN.squeeze.dim, resized, _ROWS)


def _linear(
    write: Writer,
    x: Node,
    sizes: list[int] | None,
    aligns: bool,
    scales: list[float] | None,
) -> Node | None:
    """Write a resize of a sequence as a linear layer whose weight is the resized unit matrix."""
    value = x.meta["val"]
    size = value.shape[-1]
    if not isinstance(size, int) or size > _LONGEST:
        return None
    units = torch.eye(size).unsqueeze(0)
    resized = _ATEN.upsample_linear1d.vec(units, sizes, aligns, scales)
    weight = write.constant(resized[0].T.contiguous())
    return write(_LINEAR, x, weight)


def _with_row(numbers: list[Any] | None) -> list[Any] | None:
    """Return the sizes or scales of an image of one row."""
    if numbers is None:
        return None
    one = type(numbers[0])(1)
    return [one, *numbers]


def _nearest_of_centres(
    resize: Callable[..., Tensor],
    write: Writer,
    x: Node,
    sizes: list[int] | None,
    scales: list[float] | None,
) -> Node | None:
    """Write a resize by the nearest centre as one by the nearest corner, or as choices of rows and columns.

    Torch computes the places in the graph, from ranges that depend on no input and stay on the CPU.
    """
    value = x.meta["val"]
    if not is_static(value):
        return None
    by_corners = _ATEN.upsample_nearest2d.vec
    is_image = value.dim() == _IMAGE
    if not is_image:
        by_corners = _ATEN.upsample_nearest1d.vec
    places = torch.arange(float(math.prod(value.shape[2:])))
    places = places.view(1, 1, *value.shape[2:])
    expected = resize(places, sizes, scales)
    if not torch.equal(by_corners(places, sizes, scales), expected):
        return _chosen(write, x, expected[0, 0].long())
    if is_image:
        return write(by_corners, x, sizes, scales)
    return _nearest(write, x, sizes, scales)


def _chosen(write: Writer, x: Node, places: Tensor) -> Node:
    """Write a choice of places of a sequence or an image, a dimension after the other; they are counted row by row."""
    if places.dim() == 1:
        return _chosen_along(write, x, 2, places)
    width = x.meta["val"].shape[-1]
    higher = _chosen_along(write, x, 2, places[:, 0] // width)
    return _chosen_along(write, higher, 3, places[0] % width)


def _chosen_along(write: Writer, x: Node, dim: int, places: Tensor) -> Node:
    """Write a choice of places of a dimension; as a slice where each is as far from the next."""
    first, last = int(places[0]), int(places[-1])
    step = max(int(places[:2].diff().sum()), 1)
    if torch.equal(places, torch.arange(first, last + 1, step)):
        return write(_ATEN.slice.Tensor, x, dim, first, last + 1, step)
    return write(_SELECT, x, dim, write.constant(places, f"places_{dim}"))


def _by_matrices(
    resize: Callable[..., Tensor],
    write: Writer,
    x: Node,
    sizes: list[int] | None,
    aligns: bool,
    scales: list[float] | None,
) -> Node | None:
    """Write a resize of rows and columns as two linear layers, whose weights are resized unit matrices."""
    value = x.meta["val"]
    if not is_static(value) or max(value.shape) > _LONGEST:
        return None

    def resized(image: Tensor, place: int) -> Tensor:
        """Return an image with one side resized as that side of x."""
        given = list(image.shape[2:])
        factors = [1.0, 1.0]
        if scales is not None:
            factors[place] = scales[place]
            return resize(image, None, aligns, factors)
        assert sizes is not None
        given[place] = sizes[place]
        return resize(image, given, aligns, None)

    units = [torch.eye(size).view(1, 1, size, size) for size in value.shape[2:]]
    down = resized(units[0], 0)[0, 0]
    across = resized(units[1], 1)[0, 0].T
    rows = write.constant(down, "rows")
    columns = write.constant(across.contiguous(), "columns")
    wider = write(_LINEAR, x, columns)
    turned = write(_TRANSPOSE, wider, -1, -2)
    higher = write(_LINEAR, turned, rows)
    return write(_TRANSPOSE, higher, -1, -2)


RESIZES = {
    _ATEN.upsample_nearest1d.vec: _nearest,
    _ATEN.upsample_linear1d.vec: _linear,
    **{resize: partial(_nearest_of_centres, resize) for resize in _OF_CENTRES},
    **{resize: partial(_by_matrices, resize) for resize in _SEPARABLE},
}
