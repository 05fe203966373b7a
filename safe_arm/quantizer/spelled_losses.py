"""Spellings of losses and distances that no annotator knows.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import Writer
from safe_arm.quantizer.spelled_activations import softplus_rest

_ATEN = torch.ops.aten
_SUM = _ATEN.add.Tensor
_DIFFERENCE = _ATEN.sub.Tensor
_PRODUCT = _ATEN.mul.Tensor
_CLAMP = _ATEN.clamp.default


def _squared_error(
    write: Writer,
    x: Node,
    y: Node,
    reduction: int,
) -> Node:
    distance = write(_DIFFERENCE, x, y)
    errors = write(_PRODUCT, distance, distance)
    return _reduced(write, errors, reduction)


def _absolute_error(
    write: Writer,
    x: Node,
    y: Node,
    reduction: int,
) -> Node:
    distance = write(_DIFFERENCE, x, y)
    errors = write(_ATEN.abs.default, distance)
    return _reduced(write, errors, reduction)


def _huber(
    write: Writer,
    x: Node,
    y: Node,
    reduction: int,
    border: float,
) -> Node | None:
    """Write ``m * (d - m / 2)``; d is the distance, and m the part of it before the border."""
    if border <= 0:
        return None
    errors = _rounded_error(write, x, y, border)
    return _reduced(write, errors, reduction)


def _smooth(
    write: Writer,
    x: Node,
    y: Node,
    reduction: int,
    border: float,
) -> Node | None:
    if border <= 0:
        return None
    errors = _rounded_error(write, x, y, border)
    if border != 1:
        errors = write(_PRODUCT, errors, 1 / border)
    return _reduced(write, errors, reduction)


def _rounded_error(
    write: Writer,
    x: Node,
    y: Node,
    border: float,
) -> Node:
    difference = write(_DIFFERENCE, x, y)
    distance = write(_ATEN.abs.default, difference)
    before = write(_CLAMP, distance, None, border)
    half = write(_PRODUCT, before, 0.5)
    rest = write(_DIFFERENCE, distance, half)
    return write(_PRODUCT, before, rest)


def _cross_entropy_of_logits(
    write: Writer,
    x: Node,
    target: Node,
    weight: Node | None,
    positive_weight: Node | None,
    reduction: int,
) -> Node | None:
    """Write ``relu(x) - x * target + log(1 + exp(-|x|))``, which stays finite."""
    if weight is not None:
        return None
    if positive_weight is not None:
        return None
    positive = write(_ATEN.relu.default, x)
    product = write(_PRODUCT, x, target)
    linear = write(_DIFFERENCE, positive, product)
    rest = softplus_rest(write, x)
    errors = write(_SUM, linear, rest)
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
    _ATEN.l1_loss.default: _absolute_error,
    _ATEN.huber_loss.default: _huber,
    _ATEN.smooth_l1_loss.default: _smooth,
    _ATEN.binary_cross_entropy_with_logits.default: _cross_entropy_of_logits,
    _ATEN.pairwise_distance.default: _pairwise_distance,
}
