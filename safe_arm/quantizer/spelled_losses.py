"""Spellings of distances that no annotator knows. Losses that int8 costs more than a decibel are left alone.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import Writer

_ATEN = torch.ops.aten
_SUM = _ATEN.add.Tensor
_DIFFERENCE = _ATEN.sub.Tensor
_PRODUCT = _ATEN.mul.Tensor
#: Dimensions of the values whose distances are taken, at most: there is one more between them.
_MOST_DIMS = 3


def _squared_error(
    write: Writer,
    x: Node,
    y: Node,
    reduction: int,
) -> Node:
    distance = write(_DIFFERENCE, x, y)
    errors = write(_PRODUCT, distance, distance)
    return _reduced(write, errors, reduction)


def _pairwise_distance(
    write: Writer,
    x: Node,
    y: Node,
    order: float,
    margin: float,
    keepdim: bool,
) -> Node | None:
    if order not in (1, 2):
        return None
    difference = write(_DIFFERENCE, x, y)
    if margin:
        difference = write(_SUM, difference, margin)
    if order == 1:
        distance = write(_ATEN.abs.default, difference)
        return write(_ATEN.sum.dim_IntList, distance, [-1], keepdim)
    square = write(_PRODUCT, difference, difference)
    total = write(_ATEN.sum.dim_IntList, square, [-1], keepdim)
    return write(_ATEN.sqrt.default, total)


def _distances(
    write: Writer, x: Node, y: Node, order: float, mode: int | None
) -> Node | None:
    """Write the distances of all rows from all others."""
    if order not in (1, 2):
        return None
    if x.meta["val"].dim() > _MOST_DIMS or y.meta["val"].dim() > _MOST_DIMS:
        return None
    rows = write(_ATEN.unsqueeze.default, x, -2)
    others = write(_ATEN.unsqueeze.default, y, -3)
    return _pairwise_distance(write, rows, others, order, 0.0, False)


def _distance(
    write: Writer,
    x: Node,
    y: Node,
    order: float,
) -> Node | None:
    if order != 2:
        return None
    difference = write(_DIFFERENCE, x, y)
    square = write(_PRODUCT, difference, difference)
    total = _reduced(write, square, 2)
    return write(_ATEN.sqrt.default, total)


def _reduced(
    write: Writer,
    errors: Node,
    reduction: int,
) -> Node:
    """Write the errors as they are, their mean or their sum; torch numbers these 0, 1 and 2."""
    if not reduction:
        return errors
    rank = errors.meta["val"].dim()
    dims = list(range(rank))
    if not dims:
        return errors
    if reduction == 1:
        return write(_ATEN.mean.dim, errors, dims)
    return write(_ATEN.sum.dim_IntList, errors, dims)


LOSSES = {
    _ATEN.mse_loss.default: _squared_error,
    _ATEN.pairwise_distance.default: _pairwise_distance,
    _ATEN.cdist.default: _distances,
    _ATEN.dist.default: _distance,
}
