"""Spellings of convolutions and layers whose weights are computed from an input, which stock cannot lower.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import (
    Writer,
    depends_on_input,
    pair,
    static_sizes,
    tensor_of,
)
from safe_arm.quantizer.spelled_pools import unfold_columns

_ATEN = torch.ops.aten
_RESHAPE = _ATEN.reshape.default
_UNSQUEEZE = _ATEN.unsqueeze.default


def _convolve_image(
    write: Writer,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> Node | None:
    """Write a convolution as a product of its weights and the columns of the image, for each group."""
    sizes = static_sizes(x)
    shape = static_sizes(weight)
    if sizes is None or shape is None:
        return None
    if len(sizes) != 4 or len(shape) != 4:
        return None
    if not _is_computed_from_input(weight):
        return None
    batch = sizes[0]
    outputs, depth, *kernel = shape
    columns = unfold_columns(write, x, kernel, dilation, padding, stride)
    if columns is None:
        return None
    terms = depth * kernel[0] * kernel[1]
    rows = write(_ATEN.permute.default, columns, [1, 0, 2])
    rows = write(_RESHAPE, rows, [groups, terms, -1])
    weights = write(_RESHAPE, weight, [groups, outputs // groups, terms])
    product = write(_ATEN.bmm.default, weights, rows)
    sides = []
    how = (sizes[2:], kernel, pair(dilation), pair(padding), pair(stride))
    for size, side, step, margin, stride_of_side in zip(*how, strict=True):
        reach = size + 2 * margin - step * (side - 1) - 1
        sides.append(reach // stride_of_side + 1)
    image = write(_RESHAPE, product, [outputs, batch, *sides])
    image = write(_ATEN.transpose.int, image, 0, 1)
    if bias is None:
        return image
    offsets = write(_RESHAPE, bias, [1, outputs, 1, 1])
    return write(_ATEN.add.Tensor, image, offsets)


def _convolve_sequence(
    write: Writer,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> Node | None:
    """Write a convolution of a sequence as one of an image of a single row."""
    sizes = static_sizes(x)
    if sizes is None or len(sizes) != 3 or not _is_computed_from_input(weight):
        return None
    row = write(_UNSQUEEZE, x, 2)
    kernel = write(_UNSQUEEZE, weight, 2)
    result = _convolve_image(
        write,
        row,
        kernel,
        bias,
        [1, *stride],
        [0, *padding],
        [1, *dilation],
        groups,
    )
    if result is None:
        return None
    return write(_ATEN.squeeze.dim, result, 2)


def _layer(
    write: Writer,
    x: Node,
    weight: Node,
    bias: Node | None,
) -> Node | None:
    """Write a linear layer as a product of two matrices."""
    value = tensor_of(x)
    if value is None or value.dim() < 2:
        return None
    if weight.meta["val"].dim() != 2 or not _is_computed_from_input(weight):
        return None
    turned = write(_ATEN.transpose.int, weight, 0, 1)
    product = write(_ATEN.matmul.default, x, turned)
    if bias is None:
        return product
    return write(_ATEN.add.Tensor, product, bias)


def _is_computed_from_input(weight: Node) -> bool:
    """Tell whether weights depend on an input; in a branch of control flow an input may be a constant."""
    return weight.op == "call_function" and depends_on_input(weight)


KERNELS = {
    _ATEN.linear.default: _layer,
    _ATEN.conv1d.default: _convolve_sequence,
    _ATEN.conv2d.default: _convolve_image,
}
