"""Losses and distances that no annotator knows, in terms of operators that one does.

Losses that int8 costs more than half a decibel are left alone: Huber's and the smooth one, soft margins, the cross
entropy of logits and margin rankings. Each takes the arguments of the operator in the order of its schema, and returns
None for what it leaves alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from safe_arm.quantizer.graphs.graph_edits import is_static

_ATEN = torch.ops.aten
#: Dimensions of the values whose distances are taken, at most: there is one more between them.
_MOST_DIMS = 3


def _reduced(errors: Tensor, reduction: int) -> Tensor:
    """Return errors as they are, their mean or their sum; torch numbers these 0, 1 and 2."""
    dims = list(range(errors.dim()))
    if not reduction or not dims:
        return errors
    if reduction == 1:
        return errors.mean(dims)
    return errors.sum(dims)


def _reduced_exactly(errors: Tensor, reduction: int) -> Tensor:
    """Return the same; errors in 32 bits stay exact where a sum reads them, and not a mean."""
    if reduction != 1 or not errors.dim() or not is_static(errors):
        return _reduced(errors, reduction)
    return _reduced(errors, 2) * (1 / math.prod(errors.shape))


def _squared_error(x: Tensor, y: Tensor, reduction: int) -> Tensor:
    distance = x - y
    return _reduced(distance * distance, reduction)


def _absolute_error(x: Tensor, y: Tensor, reduction: int) -> Tensor:
    return _reduced_exactly((x - y).abs(), reduction)


def _pairwise_distance(
    x: Tensor, y: Tensor, order: float, margin: float, keepdim: bool
) -> Tensor | None:
    if order not in (1, 2):
        return None
    difference = x - y
    if margin:
        difference = difference + margin
    if order == 1:
        return difference.abs().sum([-1], keepdim)
    square = difference * difference
    return square.sum([-1], keepdim).sqrt()


def _distances(x: Tensor, y: Tensor, order: float, mode: int | None) -> Tensor | None:
    """Return the distances of all rows from all others."""
    if x.dim() > _MOST_DIMS or y.dim() > _MOST_DIMS:
        return None
    return _pairwise_distance(x.unsqueeze(-2), y.unsqueeze(-3), order, 0.0, False)


def _distance(x: Tensor, y: Tensor, order: float) -> Tensor | None:
    if order != 2:
        return None
    return _squared_error(x, y, 2).sqrt()


LOSSES = {
    _ATEN.mse_loss.default: _squared_error,
    _ATEN.l1_loss.default: _absolute_error,
    _ATEN.pairwise_distance.default: _pairwise_distance,
    _ATEN.cdist.default: _distances,
    _ATEN.dist.default: _distance,
}
