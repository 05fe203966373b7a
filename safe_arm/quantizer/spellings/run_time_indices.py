"""Write an index that only run time knows, behind dimensions that are taken whole, as a selection of rows.

Stock lowers an index of the first dimensions alone.
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
    has_dtype,
    replace_node,
    static_sizes,
)

#: Dtypes of an index; of others, an index is a mask.
_NUMBERS = (torch.int64, torch.int32)


def select_at_run_time(model: GraphModule) -> None:
    """Write each such index as a selection; one below zero counts from the end, as PyTorch has it.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_with_constants(model, _select)


def _select(node: Node, values: ConstantValues) -> bool:
    """Write one operator as a selection, and tell whether it was."""
    if node.target is not torch.ops.aten.index.Tensor or static_sizes(node) is None:
        return False
    x = node.args[0]
    indices: Any = node.args[1]
    whole = indices.count(None)
    given = indices[whole:]
    if not whole or None in given:
        return False
    if not all(has_dtype(index, *_NUMBERS) for index in given):
        return False
    if all(values.of(index) is not None for index in given):
        return False
    selected = Writer(node).compute(_rows_at, [x, whole, *given])
    replace_node(node, selected)
    return True


def _rows_at(x: Tensor, first: int, *indices: Tensor) -> Tensor:
    shape = list(x.shape)
    end = first + len(indices)
    counted = []
    for index, size in zip(indices, shape[first:end], strict=True):
        counted.append(torch.where(index < 0, index + size, index))
    row = counted[0]
    for places, size in zip(counted[1:], shape[first + 1 : end], strict=True):
        row = row * size + places
    rows = x.reshape(*shape[:first], -1, *shape[end:])
    picked = rows.index_select(first, row.reshape(-1))
    return picked.reshape(*shape[:first], *row.shape, *shape[end:])
