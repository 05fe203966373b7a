"""Spellings of activation functions that no annotator knows."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import Writer

_ATEN = torch.ops.aten
#: Above this, ``log(1 + exp(x))`` is x to the last bit of a float of 32 bits.
_LINEAR = 15.0


def _softplus(write: Writer, arguments: dict[str, Any]) -> Node | None:
    beta = arguments["beta"]
    if beta <= 0 or arguments["threshold"] < _LINEAR:
        return None
    return _plus(write, arguments["self"], beta)


def _plus(write: Writer, x: Node, beta: float = 1) -> Node:
    """Write ``log(1 + exp(beta * x)) / beta`` so that no exponential is larger than 1."""
    rest = _rest(write, x, beta)
    if beta != 1:
        rest = write(_ATEN.mul.Tensor, rest, 1 / beta)
    return write(_ATEN.add.Tensor, write(_ATEN.relu.default, x), rest)


def _rest(write: Writer, x: Node, beta: float = 1) -> Node:
    """Write ``log(1 + exp(-|beta * x|))``."""
    magnitude = write(_ATEN.abs.default, x)
    # A negation would share the domain of the magnitude, half of it unused.
    exponent = write(_ATEN.mul.Tensor, magnitude, -float(beta))
    exponential = write(_ATEN.exp.default, exponent)
    return write(_ATEN.log1p.default, exponential)


def _mish(write: Writer, arguments: dict[str, Any]) -> Node:
    x = arguments["self"]
    gate = write(_ATEN.tanh.default, _plus(write, x))
    return write(_ATEN.mul.Tensor, x, gate)


def _log_sigmoid(write: Writer, arguments: dict[str, Any]) -> Node:
    x = arguments["self"]
    negative = write(_ATEN.clamp.default, x, None, 0.0)
    return write(_ATEN.sub.Tensor, negative, _rest(write, x))


def _softshrink(write: Writer, arguments: dict[str, Any]) -> Node:
    x, bound = arguments["self"], float(arguments["lambd"])
    inner = write(_ATEN.clamp.default, x, -bound, bound)
    return write(_ATEN.sub.Tensor, x, inner)


def _threshold(write: Writer, arguments: dict[str, Any]) -> Node | None:
    if arguments["threshold"] != 0 or arguments["value"] != 0:
        return None
    return write(_ATEN.relu.default, arguments["self"])


def _rrelu(write: Writer, arguments: dict[str, Any]) -> Node | None:
    if arguments["training"]:
        return None
    slope = (arguments["lower"] + arguments["upper"]) / 2
    return write(_ATEN.leaky_relu.default, arguments["self"], slope)


ACTIVATIONS = {
    _ATEN.softplus.default: _softplus,
    _ATEN.mish.default: _mish,
    _ATEN.log_sigmoid.default: _log_sigmoid,
    _ATEN.softshrink.default: _softshrink,
    _ATEN.threshold.default: _threshold,
    _ATEN.rrelu.default: _rrelu,
}
