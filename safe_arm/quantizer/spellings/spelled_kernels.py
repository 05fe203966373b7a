"""Spellings of convolutions and layers whose weights are computed from an input, which stock cannot lower.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    depends_on_input,
    pair,
    static_sizes,
    tensor_of,
)
from safe_arm.quantizer.spellings.spelled_pools import unfold_columns

_ATEN = torch.ops.aten


def _convolve_image(
    write: Writer, x: Node, weight: Node, bias: Node | None, *how: Any
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
    image: Node | None
    image = write.compute(_convolved, (x, weight, bias, *how))
    return image


def _convolved(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor | None:
    batch = x.shape[0]
    outputs, depth, *kernel = weight.shape
    columns = unfold_columns(x, kernel, dilation, padding, stride)
    if columns is None:
        return None
    terms = depth * kernel[0] * kernel[1]
    rows = columns.permute(1, 0, 2).reshape(groups, terms, -1)
    weights = weight.reshape(groups, outputs // groups, terms)
    sides = []
    how = (x.shape[2:], kernel, pair(dilation), pair(padding), pair(stride))
    for size, side, step, margin, stride_of_side in zip(*how, strict=True):
        reach = size + 2 * margin - step * (side - 1) - 1
        sides.append(reach // stride_of_side + 1)
    sums = weights.bmm(rows)
    if bias is not None:
        # The sum has 32 bits, since nothing moves the products before.
        sums = sums + bias.reshape(groups, outputs // groups, 1)
    return sums.reshape(outputs, batch, *sides).transpose(0, 1)


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
    sequence: Node | None
    how = ([1, *stride], [0, *padding], [1, *dilation], groups)
    sequence = write.compute(_convolved_row, (x, weight, bias, *how))
    return sequence


def _convolved_row(
    x: Tensor, weight: Tensor, bias: Tensor | None, *how: Any
) -> Tensor | None:
    image = _convolved(x.unsqueeze(2), weight.unsqueeze(2), bias, *how)
    return None if image is None else image.squeeze(2)


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
    layer: Node = write.compute(_multiplied, (x, weight, bias))
    return layer


def _multiplied(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product = x @ weight.transpose(0, 1)
    return product if bias is None else product + bias


def _is_computed_from_input(weight: Node) -> bool:
    """Tell whether weights depend on an input; in a branch of control flow an input may be a constant."""
    return weight.op == "call_function" and depends_on_input(weight)


KERNELS = {
    _ATEN.linear.default: _layer,
    _ATEN.conv1d.default: _convolve_sequence,
    _ATEN.conv2d.default: _convolve_image,
}
