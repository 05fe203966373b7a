"""Count indices that only run time knows from the start of a dimension (known issue S50).

In PyTorch a negative index counts from the end. TOSA's GATHER and SCATTER leave it undefined: the reference model
rejects the first and crashes on the second, and a device reads or writes beyond the tensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.island import op_name
from safe_arm.core.operators import ElementOrigin, named, operators
from safe_arm.quantizer.graphs.constant_values import (
    ConstantValues,
    rewrite_with_constants,
)
from safe_arm.quantizer.graphs.graph_edits import Writer, static_sizes, tensor_of

_ATEN = torch.ops.aten
#: The operators whose indices may be negative; PyTorch refuses such of any other operator.
_INDEXED = (
    _ATEN.index.Tensor,
    _ATEN.index_put.default,
    _ATEN.index_put_.default,
)
#: Dtypes of an index; of others, an index is a mask.
_NUMBERS = (torch.int64, torch.int32)
_HANDED_ON = operators(ElementOrigin.VIEW, ElementOrigin.PART, ElementOrigin.CAST)
_NEVER_NEGATIVE = named("argmax argmin")


def count_from_start(model: GraphModule) -> None:
    """Add the size of its dimension to each index below zero; write an index behind whole dimensions as a selection.

    Stock lowers an index of the first dimensions alone.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_with_constants(model, _count)


def _count(node: Node, values: ConstantValues) -> bool:
    """Count the indices of one operator, and tell whether it was changed."""
    if node.target not in _INDEXED:
        return False
    sizes = static_sizes(node.args[0])
    if sizes is None:
        return False
    indices: Any = node.args[1]
    if None in indices[indices.count(None) :]:
        return False  # No backend takes it, and the CPU counts as PyTorch does.
    write = Writer(node)
    counted: list[Any] = []
    for index, size in zip(indices, sizes, strict=False):
        if _may_be_negative(index, values):
            index = _from_start(write, index, size)
        counted.append(index)
    if node.target is _ATEN.index.Tensor and _is_selection(node, counted):
        whole = counted.count(None)
        arguments = [node.args[0], whole, *counted[whole:]]
        node.replace_all_uses_with(write.compute(_rows_at, arguments))
        node.graph.erase_node(node)
        return True
    node.update_arg(1, counted)
    return counted != list(indices)


def _may_be_negative(index: Node | None, values: ConstantValues) -> bool:
    """Tell whether an index is a number below zero for some input."""
    if index is None or not _is_number(index) or values.of(index) is not None:
        return False
    if index.target is _ATEN.where.self and _is_below_zero(*index.args[::2]):
        return False
    source = index
    while op_name(source) in _HANDED_ON:
        source = source.all_input_nodes[0]
    return source.meta["val"].dtype != torch.bool and (
        op_name(source) not in _NEVER_NEGATIVE
    )


def _is_number(index: Node) -> bool:
    value = tensor_of(index)
    return value is not None and value.dtype in _NUMBERS


def _is_below_zero(condition: object, index: object) -> bool:
    """Tell whether a condition is that an index is below zero."""
    return isinstance(condition, Node) and condition.args == (index, 0)


def _from_start(write: Writer, index: Node, size: int) -> Node:
    is_negative = write(_ATEN.lt.Scalar, index, 0)
    return write(
        _ATEN.where.self, is_negative, write(_ATEN.add.Tensor, index, size), index
    )


def _is_selection(node: Node, indices: list[Node | None]) -> bool:
    """Tell whether the first dimension is taken whole, and others are indexed by numbers."""
    if indices[0] is not None or static_sizes(node) is None:
        return False
    return all(index is None or _is_number(index) for index in indices)


def _rows_at(x: Tensor, first: int, *indices: Tensor) -> Tensor:
    shape = list(x.shape)
    end = first + len(indices)
    row = indices[0]
    for index, size in zip(indices[1:], shape[first + 1 : end], strict=True):
        row = row * size + index
    rows = x.reshape(*shape[:first], -1, *shape[end:])
    picked = rows.index_select(first, row.reshape(-1))
    return picked.reshape(*shape[:first], *row.shape, *shape[end:])
