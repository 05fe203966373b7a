"""A pool of squares of which a root or a logarithm is taken is a mean of each window, which stays exact in 32 bits."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm._compat.release_1_4 import LARGEST_RESCALED
from safe_arm.core.island import arguments_by_name, op_name
from safe_arm.core.operators import IN_ORDER
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_float32,
    is_read_once,
    pair,
    rewrite,
    static_sizes,
    stored_number,
)
from safe_arm.quantizer.precision.exact_products import CODE
from safe_arm.quantizer.precision.mean_squares import square_read_once
from safe_arm.quantizer.precision.sums_of_squares import number_for

_ATEN = torch.ops.aten
_POOL = _ATEN.avg_pool2d.default
_PRODUCT = _ATEN.mul.Tensor
_ADDITION = _ATEN.add.Tensor
_SUM = _ATEN.sum.dim_IntList
_CLAMP = _ATEN.clamp.default
_POWER = _ATEN.pow.Tensor_Scalar
_LOGS = (_ATEN.log.default, _ATEN.log10.default)


def sum_pooled_squares(model: GraphModule) -> None:
    """Write the pool of squares whose logarithm or root is taken as the mean of each window.

    A pool reads squares of 8 bits, each of them rounded, and gives 8 bits. Of a sum of squares the logarithm and the
    root are computed in two steps (fine_logs.py, fine_lengths.py).

    Args:
        model: a float graph that stock's passes have transformed; changed in place. Windows that overlap, or do not
            cover the image, stay a pool.
    """
    rewrite(model, _write, _POOL)


def _write(pool: Node) -> bool:
    """Write one pool, and tell whether it is one of squares."""
    window = _window_that_tiles(pool)
    if window is None or not _has_fine_reader(pool):
        return False
    square: Any = pool.args[0]
    while is_read_once(square) and op_name(square) in IN_ORDER:
        square = square.args[0]
    value = square_read_once(square)
    if not is_float32(value):
        return False
    terms = window[0] * window[1]
    if terms * CODE**2 > LARGEST_RESCALED:
        return False
    write = Writer(pool)
    shape, dims = _windows_apart(pool, window)
    apart = write(_ATEN.reshape.default, value, shape)
    total = write(_SUM, write(_PRODUCT, apart, apart), dims)
    share = number_for(write, total, 1 / terms, "share")
    mean = write(_PRODUCT, total, share)
    sizes = static_sizes(pool)
    pool.replace_all_uses_with(write(_ATEN.reshape.default, mean, sizes))
    return True


def _window_that_tiles(pool: Node) -> list[int] | None:
    """Return the sides of the windows of a pool, if they cover the image and do not overlap; None if not."""
    sizes = static_sizes(pool.args[0])
    arguments = arguments_by_name(pool)
    _, kernel, stride, *_ = arguments.values()
    window = pair(kernel)
    if sizes is None:
        return None
    if pair(stride or kernel) != window or any(arguments["padding"]):
        return None
    if arguments["divisor_override"] is not None:
        return None
    for size, side in zip(sizes[-2:], window, strict=True):
        if size % side:
            return None
    return window


def _has_fine_reader(pool: Node) -> bool:
    """Tell whether a logarithm or a root is computed of a pool, or of what is near it, and nothing else."""
    value = pool
    while is_read_once(value):
        (reader,) = value.users
        if reader.target in _LOGS:
            return True
        if reader.target is _POWER:
            return bool(reader.args[1] == 0.5)
        is_near = reader.target is _CLAMP or op_name(reader) in IN_ORDER
        if reader.target in (_PRODUCT, _ADDITION):
            is_near = stored_number(reader.args[1]) is not None
        if not is_near:
            return False
        value = reader
    return False


def _windows_apart(pool: Node, window: list[int]) -> tuple[list[int], list[int]]:
    """Return the sizes of an image whose windows have dimensions of their own, as few as can be, and which they are."""
    sizes = static_sizes(pool.args[0])
    assert sizes is not None
    *outer, height, width = sizes
    images = prod(outer)
    rows, columns = window
    if rows == 1:
        return [images * height, width // columns, columns], [2]
    shape = [images, height // rows, rows]
    if width == 1:
        return shape, [2]
    if columns == 1:
        return [*shape, width], [2]
    return [*shape, width // columns, columns], [2, 4]
