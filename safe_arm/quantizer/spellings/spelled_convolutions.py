"""Spellings of convolutions that stock cannot lower.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Node

from safe_arm.quantizer.graphs.graph_edits import Writer, pair, stored_tensor, tensor_of
from safe_arm.quantizer.graphs.own_names import own_name, write_name
from safe_arm.quantizer.graphs.own_parameters import stored_like

_ATEN = torch.ops.aten


def _padded_by_name(convolution: OpOverload) -> Callable[..., Tensor]:
    """Return the spelling of a convolution whose padding has a name, with the widths that the name stands for."""

    def spelled(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: list[int],
        padding: str,
        dilation: list[int],
        groups: int,
    ) -> Tensor:
        sides = weight.shape[2:]
        before = [0] * len(sides)
        lacking: list[int] = []
        if padding == "same":
            for index, side in enumerate(sides):
                width = (side - 1) * dilation[index % len(dilation)]
                before[index] = width // 2
                # Values that an even side lacks are added behind the others; the last dimension comes first.
                lacking = [0, width % 2, *lacking]
        if any(lacking):
            x = F.pad(x, lacking)
        convolved: Tensor
        convolved = convolution(x, weight, bias, stride, before, dilation, groups)
        return convolved

    return spelled


def _conv_transpose2d(
    write: Writer,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: list[int],
    padding: list[int],
    output_padding: list[int],
    groups: int,
    dilation: list[int],
) -> Node | None:
    """Write a transposed convolution of each channel as one of the values with zeros between them.

    Stock refuses one with a scale for each channel, and splits others into a convolution for each channel. For wider
    groups the products with zeros would cost more than that.
    """
    kernel = stored_tensor(weight)
    if kernel is None or groups == 1 or kernel.shape[0] != groups:
        return None
    sides = kernel.shape[2:]
    margins = []
    for side, step, less in zip(sides, pair(dilation), pair(padding), strict=True):
        margins.append(step * (side - 1) - less)
    if min(margins) < 0:
        return None
    apart = write.compute(spread, (x, pair(stride), pair(output_padding)))
    if apart is None:
        return None
    turned = _stored_once(write, weight, _turned(kernel), "turned")
    return write(
        _ATEN.conv2d.default,
        apart,
        turned,
        bias,
        [1, 1],
        margins,
        pair(dilation),
        groups,
    )


def _conv_transpose1d(
    write: Writer,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: list[int],
    padding: list[int],
    output_padding: list[int],
    groups: int,
    dilation: list[int],
) -> Node | None:
    """Write a transposed convolution of a sequence as one of an image of a single row; stock takes no other."""
    value = tensor_of(x)
    if value is None or value.dim() != 3:
        return None
    row = write(_ATEN.unsqueeze.default, x, 2)
    kernel = _of_a_row(write, weight)
    how = (
        [1, *stride],
        [0, *padding],
        [0, *output_padding],
        groups,
        [1, *dilation],
    )
    result = _conv_transpose2d(write, row, kernel, bias, *how)
    if result is None:
        result = write(_ATEN.conv_transpose2d.input, row, kernel, bias, *how)
    return write(_ATEN.squeeze.dim, result, 2)


def _of_a_row(write: Writer, weight: Node) -> Node:
    """Write the weights for a sequence as those for an image of a single row."""
    kernel = stored_tensor(weight)
    if kernel is None:
        return write(_ATEN.unsqueeze.default, weight, 2)
    row = stored_like(kernel, kernel.detach().unsqueeze(2))
    return _stored_once(write, weight, row, "row")


def _stored_once(write: Writer, weight: Node, value: Tensor, form: str) -> Node:
    """Store weights in another form, and read those that are stored of a weight already: they are trained together."""
    name = own_name(weight)
    if name == weight.name:
        name = str(weight.target)
    for node in weight.graph.find_nodes(op="get_attr"):
        if own_name(node) == name and str(node.target).startswith(f"{form}_"):
            return write.read(node.target, node)
    constant = write.constant(value, form)
    write_name(constant, name)
    return constant


def _turned(kernel: Tensor) -> Tensor:
    """Return the weights of a transposed convolution of each channel as those of one that is not transposed."""
    turned = kernel.detach().flip(-2, -1).flatten(0, 1).unsqueeze(1)
    return stored_like(kernel, turned)


def spread(x: Tensor, stride: list[int], trailing: list[int]) -> Tensor | None:
    """Return an image with zeros between its values; None for one without a batch, or of dynamic sides.

    With the channels last the zeros are behind what they follow, which costs a copy and no transpose.

    Args:
        x: the image.
        stride: from one value to the next.
        trailing: so many zeros follow the last value, fewer than ``stride``.
    """
    if x.dim() != 4:
        return None
    _, channels, rows, columns = x.shape
    if not all(isinstance(size, int) for size in (channels, rows, columns)):
        return None
    down, across = stride
    if trailing[0] >= down or trailing[1] >= across:
        return None
    width = columns * across
    x = F.pad(x.permute(0, 2, 3, 1), [0, (across - 1) * channels])
    x = x.reshape(-1, rows, width * channels)
    x = F.pad(x, [0, (down - 1) * width * channels])
    x = x.reshape(-1, rows * down, width, channels)
    lengths = [
        (rows - 1) * down + 1 + trailing[0],
        (columns - 1) * across + 1 + trailing[1],
    ]
    for dim, length in enumerate(lengths, 1):
        x = _ATEN.slice(x, dim, 0, length)
    return x.permute(0, 3, 1, 2)


PADDED_CONVOLUTIONS = {
    _ATEN.conv1d.padding: _padded_by_name(_ATEN.conv1d.default),
    _ATEN.conv2d.padding: _padded_by_name(_ATEN.conv2d.default),
    _ATEN.conv3d.padding: _padded_by_name(_ATEN.conv3d.default),
}
#: Spellings that look at the nodes of the graph.
CONVOLUTIONS = {
    _ATEN.conv_transpose1d.default: _conv_transpose1d,
    _ATEN.conv_transpose2d.input: _conv_transpose2d,
}
