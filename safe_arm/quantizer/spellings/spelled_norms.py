"""Norms that no annotator knows, in terms of operators that one does.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Node
from torch.nn import Parameter

from safe_arm.core.island import op_name
from safe_arm.core.operators import RESHAPES
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    static_sizes,
    stored_tensor,
    tensor_of,
)
from safe_arm.quantizer.graphs.own_names import write_name

_ATEN = torch.ops.aten
#: The dimension that a sequence is given to be an image.
_ROWS = -2


def _instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    seen_mean: Tensor | None,
    seen_variance: Tensor | None,
    is_of_instance: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Tensor | None:
    """Return a norm over an image without a reshape, which would cost a transpose on the device."""
    # With statistics of its own it writes into them.
    if not is_of_instance or seen_mean is not None:
        return None
    dims = list(range(2, x.dim()))
    terms = _count(x, dims)
    if not terms:
        return None
    normed = _over_root(x - _mean(x, dims, terms), dims, terms, eps)
    across = [1, -1, *(1 for _ in dims)]
    if weight is not None:
        normed = normed * weight.view(across)
    if bias is not None:
        normed = normed + bias.view(across)
    return normed


def _instance_norm_in_groups(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, *how: Any
) -> Tensor | None:
    """Return a norm with factors as one of groups of one channel."""
    seen_mean, _, is_of_instance, _, eps, *_ = how
    if weight is None or not is_of_instance or seen_mean is not None:
        return _instance_norm(x, weight, bias, *how)
    return F.group_norm(x, x.shape[1], weight, bias, eps)


def _rms_norm(
    x: Tensor, shape: list[Any], weight: Tensor | None, eps: float | None
) -> Tensor | None:
    dims = list(range(x.dim() - len(shape), x.dim()))
    terms = _count(x, dims)
    if not terms:
        return None
    if eps is None:
        eps = torch.finfo(torch.float32).eps
    normed = _over_root(x, dims, terms, eps)
    return normed if weight is None else normed * weight


def _count(x: Tensor, dims: list[int]) -> int:
    """Return how many values a mean is taken of; 0 if that is not known."""
    terms = math.prod(x.shape[dim] for dim in dims)
    return terms if isinstance(terms, int) else 0


def _mean(x: Tensor, dims: list[int], terms: int) -> Tensor:
    """Return a mean as the sum that it is, so that what is summed may stay exact."""
    return x.sum(dims, True) * (1 / terms)


def _over_root(x: Tensor, dims: list[int], terms: int, eps: float) -> Tensor:
    """Return values divided by the root of their mean square."""
    raised = _mean(x * x, dims, terms) + eps
    return x * raised.rsqrt()


def _linalg_norm(
    x: Tensor, order: float | None, dims: list[int] | None, keepdim: bool, *_: Any
) -> Tensor | None:
    # Along two dimensions that of order 2 is not the root of a sum of squares.
    if order is not None and (order != 2 or dims is None or len(dims) != 1):
        return None
    return _ATEN.linalg_vector_norm(x, 2, dims, keepdim)


def _norm_of_vectors(
    x: Tensor, order: float, dims: list[int] | None, keepdim: bool, *_: Any
) -> Tensor | None:
    """Return a norm of infinite order as the extreme of the magnitudes."""
    if not x.dim():
        return None
    if not dims:
        dims = list(range(x.dim()))
    if order == math.inf:
        return x.abs().amax(dims, keepdim)
    if order == -math.inf:
        return x.abs().amin(dims, keepdim)
    return None


def _batch_norm(
    write: Writer,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    mean: Node | None,
    variance: Node | None,
    is_training: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Node | None:
    """Write a norm that no layer was folded with as a convolution of each channel with one weight.

    Stock writes five operators, and rounds the root of the variance to int8.
    """
    value = tensor_of(x)
    if is_training or value is None:
        return None
    centre, spread = stored_tensor(mean), stored_tensor(variance)
    if centre is None or spread is None:
        return None
    scale = torch.ones_like(spread) if weight is None else stored_tensor(weight)
    shift = torch.zeros_like(spread) if bias is None else stored_tensor(bias)
    if scale is None or shift is None:
        return None
    with torch.no_grad():
        factor = scale * (spread + eps).rsqrt()
        offset = shift - centre * factor
    folded = _folded_rows(x, factor, offset)
    if folded is not None:
        return folded
    image = as_image(write, x)
    if image is None:
        return None
    # They are trained if those of the norm are.
    kernels = Parameter(factor.view(-1, 1, 1, 1), requires_grad=scale.requires_grad)
    offsets = Parameter(offset, requires_grad=shift.requires_grad)
    convolved = write(
        _ATEN.conv2d.default,
        image,
        write.constant(kernels, "weight"),
        write.constant(offsets, "bias"),
        [1, 1],
        [0, 0],
        [1, 1],
        len(factor),
    )
    return from_image(write, convolved, value.shape)


def _folded_rows(
    x: Node,
    factor: Tensor,
    offset: Tensor,
) -> Node | None:
    """Fold a norm into the linear layer that gives the rows it reads, and return these rows; None if there is none.

    Args:
        x: what the norm reads: the layer's result as rows. A norm that reads the result itself is folded later.
        factor: what the norm multiplies each channel by.
        offset: what it adds to each then.
    """
    views: list[Node] = []
    layer = x
    while op_name(layer) in RESHAPES and _has_channels(layer, len(factor)):
        views.append(layer)
        layer = layer.all_input_nodes[0]
    if not views or layer.target is not _ATEN.linear.default:
        return None
    for node in (layer, *views):
        if len(_readers(node)) != 1:
            return None
    if tensor_of(x).dim() != 2 or not _has_channels(layer, len(factor)):  # type: ignore[union-attr]
        return None
    source, read, added = (*layer.args, None)[:3]
    weight = stored_tensor(read)
    bias = None if added is None else stored_tensor(added)
    if weight is None or (bias is None) != (added is None):
        return None
    with torch.no_grad():
        scaled = weight * factor.view(-1, 1)
        moved = offset if bias is None else offset + bias * factor
    kernels = Parameter(scaled, requires_grad=weight.requires_grad)
    offsets = Parameter(moved, requires_grad=weight.requires_grad)
    # Settings for the layer hold for it.
    instead = Writer(layer)
    kernel = instead.constant(kernels, "weight")
    write_name(kernel, str(read.target))  # type: ignore[union-attr]
    added = instead.constant(offsets, "bias")
    result = instead(_ATEN.linear.default, source, kernel, added)
    layer.replace_all_uses_with(result)
    return x


def _readers(node: Node) -> list[Node]:
    """Return the operators that read more of a value than its shape, where that is known."""
    is_static = static_sizes(node) is not None
    readers = []
    for user in node.users:
        reads_shape = (
            user.target is _ATEN.reshape_as.default and node is not user.args[0]
        )
        if not (is_static and reads_shape):
            readers.append(user)
    return readers


def _has_channels(node: Node, count: int) -> bool:
    """Tell whether the last dimension of a value is that of so many channels."""
    value = tensor_of(node)
    return value is not None and value.dim() > 0 and value.shape[-1] == count


def as_image(write: Writer, x: Node) -> Node | None:
    """Write rows, a sequence or a volume as an image with the same channels; None for what has another rank.

    Rows are the pixels of one image: an Ethos-U convolves images one after the other.
    """
    value = x.meta["val"]
    if value.dim() == 2:
        columns = write(_ATEN.t.default, x)
        sequence = write(_ATEN.unsqueeze.default, columns, 0)
        return write(_ATEN.unsqueeze.default, sequence, _ROWS)
    if value.dim() == 3:
        return write(_ATEN.unsqueeze.default, x, _ROWS)
    if value.dim() == 5 and all(isinstance(size, int) for size in value.shape[3:]):
        return write(_ATEN.flatten.using_ints, x, 3)
    return x if value.dim() == 4 else None


def from_image(write: Writer, image: Node, shape: torch.Size) -> Node:
    """Write an image in the rank of the shape that it had before."""
    if len(shape) == 2:
        sequence = write(_ATEN.squeeze.dim, image, _ROWS)
        columns = write(_ATEN.squeeze.dim, sequence, 0)
        return write(_ATEN.t.default, columns)
    if len(shape) == 3:
        return write(_ATEN.squeeze.dim, image, _ROWS)
    if len(shape) == 5:
        return write(_ATEN.unflatten.int, image, 3, list(shape[3:]))
    return image


#: Spellings that look at the nodes of the graph.
BATCH_NORMS = {_ATEN.batch_norm.default: _batch_norm}
NORMS = {
    _ATEN.instance_norm.default: _instance_norm,
    _ATEN.rms_norm.default: _rms_norm,
    _ATEN.linalg_norm.default: _linalg_norm,
    _ATEN.linalg_vector_norm.default: _norm_of_vectors,
}
#: Spellings of norms as those of groups.
NORMS_IN_GROUPS = {_ATEN.instance_norm.default: _instance_norm_in_groups}
