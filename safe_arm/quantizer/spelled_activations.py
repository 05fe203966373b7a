"""Spellings of activation functions that no annotator knows.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import Writer

_ATEN = torch.ops.aten
_PRODUCT = _ATEN.mul.Tensor
_DIFFERENCE = _ATEN.sub.Tensor
_CLAMP = _ATEN.clamp.default
#: Above this, ``log(1 + exp(x))`` is x to the last bit of a float of 32 bits.
_LINEAR = 15.0


def _softplus(
    write: Writer,
    x: Node,
    beta: float,
    threshold: float,
) -> Node | None:
    if beta <= 0:
        return None
    if threshold < _LINEAR:
        return None
    return _plus(write, x, beta)


def _plus(write: Writer, x: Node, beta: float = 1) -> Node:
    """Write ``log(1 + exp(beta * x)) / beta`` so that no exponential is larger than 1."""
    rest = _rest(write, x, beta)
    if beta != 1:
        rest = write(_PRODUCT, rest, 1 / beta)
    positive = write(_ATEN.relu.default, x)
    return write(_ATEN.add.Tensor, positive, rest)


def _rest(write: Writer, x: Node, beta: float = 1) -> Node:
    """Write ``log(1 + exp(-|beta * x|))``."""
    magnitude = write(_ATEN.abs.default, x)
    # A negation would share the domain of the magnitude, half of it unused.
    exponent = write(_PRODUCT, magnitude, -float(beta))
    exponential = write(_ATEN.exp.default, exponent)
    return write(_ATEN.log1p.default, exponential)


def _mish(write: Writer, x: Node) -> Node:
    plus = _plus(write, x)
    gate = write(_ATEN.tanh.default, plus)
    return write(_PRODUCT, x, gate)


def _log_sigmoid(write: Writer, x: Node) -> Node:
    negative = write(_CLAMP, x, None, 0.0)
    rest = _rest(write, x)
    return write(_DIFFERENCE, negative, rest)


def _threshold(
    write: Writer,
    x: Node,
    threshold: float,
    value: float,
) -> Node | None:
    """Write a ReLU. At another threshold a rounded value may be on the other side, a whole jump away."""
    if threshold != 0 or value != 0:
        return None
    return write(_ATEN.relu.default, x)


def _hard_shrink(write: Writer, x: Node, border: float) -> Node:
    magnitude = write(_ATEN.abs.default, x)
    is_outside = write(_ATEN.gt.Scalar, magnitude, border)
    return write(_ATEN.where.ScalarOther, is_outside, x, 0.0)


def _rrelu(
    write: Writer, x: Node, lower: float, upper: float, training: bool, *_: Any
) -> Node | None:
    if training:
        return None
    slope = (lower + upper) / 2
    return write(_ATEN.leaky_relu.default, x, slope)


ACTIVATIONS = {
    _ATEN.softplus.default: _softplus,
    _ATEN.mish.default: _mish,
    _ATEN.log_sigmoid.default: _log_sigmoid,
    _ATEN.threshold.default: _threshold,
    _ATEN.hardshrink.default: _hard_shrink,
    _ATEN.rrelu.default: _rrelu,
}
