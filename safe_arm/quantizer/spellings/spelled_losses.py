"""Losses and distances that no annotator knows, in terms of operators that one does.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from safe_arm.quantizer.graphs.graph_edits import is_static
from safe_arm.quantizer.spellings.spelled_activations import softplus

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


def _huber_loss(x: Tensor, y: Tensor, reduction: int, delta: float) -> Tensor:
    """Return half a square up to a distance, and a line behind it: ``c * (d - c / 2)`` with ``c = min(d, delta)``."""
    distance = (x - y).abs()
    bounded = distance.clamp(max=delta)
    return _reduced_exactly(bounded * (distance - bounded * 0.5), reduction)


def _smooth_l1_loss(x: Tensor, y: Tensor, reduction: int, beta: float) -> Tensor:
    if beta == 0:
        return _absolute_error(x, y, reduction)
    return _huber_loss(x, y, reduction, beta) * (1 / beta)


def _soft_margin_loss(x: Tensor, y: Tensor, reduction: int) -> Tensor:
    """Return ``log(1 + exp(-x * y))``."""
    return _reduced(softplus(-(x * y)), reduction)


def _cross_entropy_of_logits(
    x: Tensor,
    y: Tensor,
    weight: Tensor | None,
    positive_weight: Tensor | None,
    reduction: int,
) -> Tensor | None:
    """Return ``log(1 + exp(x)) - x * y``."""
    if weight is not None or positive_weight is not None:
        return None
    return _reduced(softplus(x) - x * y, reduction)


def _margin_ranking_loss(
    x: Tensor, other: Tensor, y: Tensor, margin: float, reduction: int
) -> Tensor:
    return _reduced((margin - (x - other) * y).relu(), reduction)


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
    _ATEN.huber_loss.default: _huber_loss,
    _ATEN.smooth_l1_loss.default: _smooth_l1_loss,
    _ATEN.soft_margin_loss.default: _soft_margin_loss,
    _ATEN.binary_cross_entropy_with_logits.default: _cross_entropy_of_logits,
    _ATEN.margin_ranking_loss.default: _margin_ranking_loss,
    _ATEN.pairwise_distance.default: _pairwise_distance,
    _ATEN.cdist.default: _distances,
    _ATEN.dist.default: _distance,
}
