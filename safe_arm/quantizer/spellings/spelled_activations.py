"""Activation functions that no annotator knows, in terms of operators that one does.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_ATEN = torch.ops.aten
#: Above this, ``log(1 + exp(x))`` is x to the last bit of a float of 32 bits.
_LINEAR = 15.0


def _softplus(x: Tensor, beta: float, threshold: float) -> Tensor | None:
    if beta <= 0 or threshold < _LINEAR:
        return None
    # No exponential is larger than 1.
    rest = _rest(x, beta)
    if beta != 1:
        rest = rest * (1 / beta)
    return x.relu() + rest


def _rest(x: Tensor, beta: float = 1) -> Tensor:
    """Return ``log(1 + exp(-|beta * x|))``."""
    # A negation would share the domain of the magnitude, half of it unused.
    return (x.abs() * -float(beta)).exp().log1p()


def _log_of_sum(x: Tensor, y: Tensor) -> Tensor:
    """Return ``log(exp(x) + exp(y))`` as the larger value and a rest of at most log(2)."""
    return torch.maximum(x, y) + _rest(x - y)


def _binary_log_of_sum(x: Tensor, y: Tensor) -> Tensor:
    rest = _rest(x - y, math.log(2))
    return torch.maximum(x, y) + rest * (1 / math.log(2))


def _mish(x: Tensor) -> Tensor:
    rest = _rest(x)
    return x * (x.relu() + rest).tanh()


def _log_sigmoid(x: Tensor) -> Tensor:
    return x.clamp(max=0.0) - _rest(x)


def _threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    if threshold == 0 and value == 0:
        return x.relu()
    return torch.where(x > threshold, x, value)


def _hard_shrink(x: Tensor, border: float) -> Tensor:
    return torch.where(x.abs() > border, x, 0.0)


def _soft_shrink(x: Tensor, border: float) -> Tensor:
    return x - x.clamp(-border, border)


def _rrelu(
    x: Tensor, lower: float, upper: float, training: bool, *_: Any
) -> Tensor | None:
    if training:
        return None
    return F.leaky_relu(x, (lower + upper) / 2)


def _softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    return x.softmax(dim, dtype=dtype)


def _log_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    return x.log_softmax(dim, dtype=dtype)


ACTIVATIONS = {
    _ATEN.special_softmax.default: _softmax,
    _ATEN.special_log_softmax.default: _log_softmax,
    _ATEN.softplus.default: _softplus,
    _ATEN.logaddexp.default: _log_of_sum,
    _ATEN.logaddexp2.default: _binary_log_of_sum,
    _ATEN.mish.default: _mish,
    _ATEN.log_sigmoid.default: _log_sigmoid,
    _ATEN.threshold.default: _threshold,
    _ATEN.hardshrink.default: _hard_shrink,
    _ATEN.softshrink.default: _soft_shrink,
    _ATEN.rrelu.default: _rrelu,
}
