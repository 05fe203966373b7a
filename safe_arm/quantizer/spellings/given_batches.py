"""Convolutions and means of windows of a single image are written with a batch of one.

``torch`` takes an image without a batch. Stock's backend asks for four dimensions, and the profile without floats
refuses a convolution whose input and output are not quantised but viewed.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import ACTIVATIONS, op_name
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    replace_node,
    rewrite_all,
    tensor_of,
)

_ATEN = torch.ops.aten
_CONVOLUTIONS = {
    _ATEN.conv1d.default: 3,
    _ATEN.conv1d.padding: 3,
    _ATEN.conv_transpose1d.default: 3,
    _ATEN.conv2d.default: 4,
    _ATEN.conv2d.padding: 4,
    _ATEN.conv_transpose2d.input: 4,
    _ATEN.conv3d.default: 5,
    _ATEN.conv3d.padding: 5,
    _ATEN.conv_transpose3d.input: 5,
}
_POOLS = {
    _ATEN.avg_pool1d.default: 3,
    _ATEN.adaptive_avg_pool1d.default: 3,
    _ATEN.avg_pool2d.default: 4,
    _ATEN.adaptive_avg_pool2d.default: 4,
    _ATEN.avg_pool3d.default: 5,
    _ATEN.adaptive_avg_pool3d.default: 5,
}
#: The dimensions of a batch of images, for each operator.
_DIMENSIONS = _CONVOLUTIONS | _POOLS


def give_batches(model: GraphModule) -> None:
    """Write each operator on an image without a batch as one on a batch of one.

    The activation behind a convolution is computed before the batch is taken away, because it is quantised together
    with the convolution.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_all(model, _give_batch, *_DIMENSIONS)


def _give_batch(node: Node) -> bool:
    """Write one operator with a batch of one; tell whether it leaves dead code behind, which it never does."""
    image, *rest = node.args
    value = tensor_of(image)
    if value is None or value.dim() != _DIMENSIONS[node.target] - 1:  # type: ignore[index]
        return False
    write = Writer(node)
    batch = write(_ATEN.unsqueeze.default, image, 0)
    result = write(node.target, batch, *rest, **node.kwargs)  # type: ignore[arg-type]
    end = node
    if node.target in _CONVOLUTIONS:
        activation = _activation_behind(node)
        if activation is not None:
            write = Writer(activation)
            result = write(
                activation.target,  # type: ignore[arg-type]
                result,
                *activation.args[1:],
                **activation.kwargs,
            )
            end = activation
    replace_node(end, write(_ATEN.squeeze.dim, result, 0))
    if end is not node:
        node.graph.erase_node(node)
    return False


def _activation_behind(node: Node) -> Node | None:
    """Return the activation that alone reads a convolution; None if there is none."""
    if len(node.users) != 1:
        return None
    reader = next(iter(node.users))
    return reader if op_name(reader) in ACTIVATIONS else None
