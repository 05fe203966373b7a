"""The index of an extreme is compared in 32 bits, as TOSA has no more: which expert is chosen, or which class is left.

``where(scores.argmax(-1) == 2, x, 0)`` compares 64 bits: stock leaves the cast to them and the comparison on the CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.constant_values import (
    ConstantValues,
    rewrite_with_constants,
)
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    moved_from,
    replace_node,
    tensor_of,
)

_ATEN = torch.ops.aten
_INDICES = (_ATEN.argmax.default, _ATEN.argmin.default)
#: Comparisons, each with the one of two tensors.
_COMPARISONS: dict[Any, Any] = {
    _ATEN.eq.Scalar: _ATEN.eq.Tensor,
    _ATEN.eq.Tensor: _ATEN.eq.Tensor,
    _ATEN.ne.Scalar: _ATEN.ne.Tensor,
    _ATEN.ne.Tensor: _ATEN.ne.Tensor,
    _ATEN.lt.Scalar: _ATEN.lt.Tensor,
    _ATEN.lt.Tensor: _ATEN.lt.Tensor,
    _ATEN.le.Scalar: _ATEN.le.Tensor,
    _ATEN.le.Tensor: _ATEN.le.Tensor,
    _ATEN.gt.Scalar: _ATEN.gt.Tensor,
    _ATEN.gt.Tensor: _ATEN.gt.Tensor,
    _ATEN.ge.Scalar: _ATEN.ge.Tensor,
    _ATEN.ge.Tensor: _ATEN.ge.Tensor,
}
_LARGEST = torch.iinfo(torch.int32).max


def compare_in_32_bits(model: GraphModule) -> None:
    """Compare the index of a maximum or minimum with a constant in 32 bits.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_with_constants(model, _compare)


def _compare(node: Node, values: ConstantValues) -> bool:
    """Write one comparison anew, and tell whether it was."""
    target = _COMPARISONS.get(node.target)
    if target is None or node.kwargs:
        return False
    index, other = node.args
    value = tensor_of(index)
    if value is None or value.dtype != torch.int64 or not value.dim():
        return False
    if not isinstance(index, Node) or moved_from(index).target not in _INDICES:
        return False
    places = _in_32_bits(values, other, value.dim())
    if places is None:
        return False
    write = Writer(node)
    narrow = write(_ATEN.to.dtype, index, torch.int32)
    replace_node(node, write(target, narrow, write.constant(places, "places")))
    return True


def _in_32_bits(values: ConstantValues, other: object, rank: int) -> Tensor | None:
    """Return a whole number, or constant ones, with so many dimensions; None for others."""
    if isinstance(other, int):
        places: Tensor | None = torch.tensor(other)
    else:
        places = values.of(other)
    if places is None or places.dtype not in (torch.int64, torch.int32):
        return None
    if not places.numel() or int(places.abs().max()) > _LARGEST:
        return None
    missing = max(rank - places.dim(), 0)
    return places.to(torch.int32).reshape([1] * missing + list(places.shape))
