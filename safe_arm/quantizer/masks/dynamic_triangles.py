"""Write the triangle of a matrix of dynamic size as a choice by places (known issue T77)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    replace_node,
    rewrite_all,
    tensor_of,
)

_ATEN = torch.ops.aten


def spell_out_dynamic_triangles(model: GraphModule) -> None:
    """Write ``tril`` and ``triu`` of matrices whose sizes are symbols by the numbers of their rows and columns.

    Stock's pass for ``tril`` puts the sizes of the example in for the symbols, and with them into every other operator.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_all(model, _spell_out, _ATEN.tril.default, _ATEN.triu.default)


def _spell_out(node: Node) -> bool:
    value = tensor_of(node)
    if value is None or _has_static_matrices(value):
        return False
    triangle = _lower if node.target is _ATEN.tril.default else _upper
    replace_node(node, Writer(node).compute(triangle, node.args, node.kwargs))
    return True


def _has_static_matrices(value: Tensor) -> bool:
    return all(isinstance(size, int) for size in value.shape[-2:])


def _lower(x: Tensor, diagonal: int = 0) -> Tensor:
    return _kept(x, _distances(x) <= diagonal)


def _upper(x: Tensor, diagonal: int = 0) -> Tensor:
    return _kept(x, _distances(x) >= diagonal)


def _distances(x: Tensor) -> Tensor:
    """Return how far each element of a matrix is to the right of the main diagonal."""
    rows, columns = x.shape[-2:]
    return torch.arange(columns) - torch.arange(rows).unsqueeze(-1)


def _kept(x: Tensor, is_kept: Tensor) -> Tensor:
    if x.dtype == torch.bool:
        return x & is_kept
    return torch.where(is_kept, x, torch.zeros((), dtype=x.dtype))
