"""Find the softmaxes of a float graph, and write the operators that replace them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.island import op_name
from safe_arm.core.operators import RESHAPES
from safe_arm.quantizer.graphs.graph_edits import (
    add_operator,
    calls,
    replace_node,
    tensor_of,
)

_ATEN = torch.ops.aten
_SAFE = _ATEN._safe_softmax.default
_SOFTMAX = (_ATEN.softmax.int, _ATEN._softmax.default, _SAFE)
_CASTS = (
    _ATEN.to.dtype,
    _ATEN.to.dtype_layout,
    _ATEN.to.device,
    _ATEN.to.other,
    _ATEN.type_as.default,
)


@dataclass(frozen=True)
class Softmax:
    """A softmax of a tensor of floats in its own dtype.

    Attributes:
        node: the operator.
        source: what it reads, before it was cast to its own dtype, and reshaped if that left the dimension as it is.
        value: the fake tensor of ``source``.
        dim: its dimension in ``source``.
    """

    node: Node
    source: Node
    value: Tensor
    dim: int

    @property
    def is_safe(self) -> bool:
        """Return whether it gives 0 for a row that is all minus infinity."""
        return self.node.target is _SAFE

    def replace(self, result: Node) -> None:
        """Put another node in the place of the softmax; it has the shape of ``source``."""
        shape = list(self.node.meta["val"].shape)
        if shape != list(self.value.shape):
            with self.node.graph.inserting_before(self.node):
                result = add_operator(_ATEN.view.default, result, shape)
        replace_node(self.node, result)


def softmaxes(module: GraphModule) -> Iterator[Softmax]:
    """Give the softmaxes of a graph, its branches not included."""
    for node in calls(module, *_SOFTMAX):
        softmax = _softmax(node)
        if softmax is not None:
            yield softmax


def _softmax(node: Node) -> Softmax | None:
    source, dim = node.args[:2]
    value = tensor_of(source)
    if value is None or not value.dim():
        return None
    if not value.is_floating_point():
        return None
    dtype = (*node.args[2:], node.kwargs.get("dtype"))[0]
    if isinstance(dtype, torch.dtype) and dtype != value.dtype:
        return None
    assert isinstance(source, Node)
    assert isinstance(dim, int)
    dim %= value.dim()
    source = before_casts(source)
    while op_name(source) in RESHAPES:
        before = before_casts(source.args[0])
        earlier = tensor_of(before)
        if earlier is None or not _keeps_last(earlier, value, dim):
            break
        source, value, dim = before, earlier, earlier.dim() - 1
    return Softmax(node, source, value, dim)


def before_casts(value: object) -> Any:
    """Return a value before it was cast to the dtype that it has, as in ``softmax(scores.float())`` of floats."""
    while isinstance(value, Node) and value.target in _CASTS:
        source = value.args[0]
        before = tensor_of(source)
        after = tensor_of(value)
        if before is None or after is None or before.dtype != after.dtype:
            break
        value = source
    return value


def _keeps_last(before: Tensor, after: Tensor, dim: int) -> bool:
    """Return whether a dimension is the last one before and after tensors of fixed sizes are reshaped."""
    if not before.dim() or dim != after.dim() - 1:
        return False
    for size in (*before.shape, *after.shape):
        if not isinstance(size, int):
            return False
    return before.shape[-1] == after.shape[-1]


def distances(x: Node, *dims: int) -> Node:
    """Write the distances of values to their maximum along dimensions."""
    highest = add_operator(_ATEN.amax.default, x, list(dims), True)
    return add_operator(_ATEN.sub.Tensor, x, highest)


def total(x: Node, dim: int) -> Node:
    """Write the sum along a dimension, which stays with size 1."""
    return add_operator(_ATEN.sum.dim_IntList, x, [dim], True)


def normalised(x: Node, divisor: Node) -> Node:
    """Write a quotient as stock writes that of a softmax."""
    factor = add_operator(_ATEN.reciprocal.default, divisor)
    return add_operator(_ATEN.mul.Tensor, x, factor)
