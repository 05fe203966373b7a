"""Spellings of arithmetic that no annotator knows."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import Writer, tensor_of

_ATEN = torch.ops.aten
Arguments = dict[str, Any]


def _square(write: Writer, arguments: Arguments) -> Node:
    x = arguments["self"]
    return write(_ATEN.mul.Tensor, x, x)


def _clamp(write: Writer, arguments: Arguments) -> Node:
    low, high = arguments.get("min"), arguments.get("max")
    return write(_ATEN.clamp.default, arguments["self"], low, high)


def _scaled(write: Writer, x: Node, factor: float) -> Node:
    if factor == 1:
        return x
    return write(_ATEN.mul.Tensor, x, factor)


def _add_product(write: Writer, arguments: Arguments) -> Node:
    product = write(_ATEN.mul.Tensor, arguments["tensor1"], arguments["tensor2"])
    scaled = _scaled(write, product, arguments["value"])
    return write(_ATEN.add.Tensor, arguments["self"], scaled)


def _add_quotient(write: Writer, arguments: Arguments) -> Node:
    quotient = write(_ATEN.div.Tensor, arguments["tensor1"], arguments["tensor2"])
    scaled = _scaled(write, quotient, arguments["value"])
    return write(_ATEN.add.Tensor, arguments["self"], scaled)


def _add_batched(write: Writer, arguments: Arguments) -> Node | None:
    if not _is_plain_sum(arguments):
        return None
    product = write(_ATEN.bmm.default, arguments["batch1"], arguments["batch2"])
    return write(_ATEN.add.Tensor, arguments["self"], product)


def _add_matrices(write: Writer, arguments: Arguments) -> Node | None:
    """Write a product with a constant as a linear layer, whose weights have a scale for each channel."""
    if not _is_plain_sum(arguments):
        return None
    left, right, bias = arguments["mat1"], arguments["mat2"], arguments["self"]
    if _is_parameter(bias, 1):
        if _is_parameter(right, 2):
            weight = write(_ATEN.t.default, right)
            return write(_ATEN.linear.default, left, weight, bias)
        if right.target is _ATEN.t.default and _is_parameter(right.args[0], 2):
            return write(_ATEN.linear.default, left, right.args[0], bias)
    product = write(_ATEN.mm.default, left, right)
    return write(_ATEN.add.Tensor, bias, product)


def _is_plain_sum(arguments: Arguments) -> bool:
    return arguments["alpha"] == 1 and arguments["beta"] == 1


def _is_parameter(node: object, rank: int) -> bool:
    value = tensor_of(node)
    if value is None or value.dim() != rank:
        return False
    return isinstance(node, Node) and node.op == "get_attr"


def _lerp(write: Writer, arguments: Arguments) -> Node:
    weight = arguments["weight"]
    start = write(_ATEN.mul.Tensor, arguments["self"], 1 - weight)
    end = write(_ATEN.mul.Tensor, arguments["end"], weight)
    return write(_ATEN.add.Tensor, start, end)


def _lerp_tensor(write: Writer, arguments: Arguments) -> Node:
    start = arguments["self"]
    distance = write(_ATEN.sub.Tensor, arguments["end"], start)
    part = write(_ATEN.mul.Tensor, distance, arguments["weight"])
    return write(_ATEN.add.Tensor, start, part)


def _minimum(write: Writer, arguments: Arguments) -> Node | None:
    x = arguments["self"]
    value = tensor_of(x)
    if value is None or not value.dim():
        return None
    return write(_ATEN.amin.default, x, list(range(value.dim())), False)


def _deviation(write: Writer, arguments: Arguments) -> Node | None:
    if arguments["dim"] is None:
        return None
    correction = arguments.get("correction", arguments.get("unbiased"))
    if correction is None:
        correction = 1
    variance = write(
        _ATEN.var.correction,
        arguments["self"],
        arguments["dim"],
        correction=int(correction),
        keepdim=arguments["keepdim"],
    )
    return write(_ATEN.sqrt.default, variance)


def _extremes(write: Writer, arguments: Arguments) -> list[Node] | None:
    x, dim, keepdim = arguments["self"], arguments["dim"], arguments["keepdim"]
    if dim is None:
        return None
    lowest = write(_ATEN.amin.default, x, [dim], keepdim)
    highest = write(_ATEN.amax.default, x, [dim], keepdim)
    return [lowest, highest]


def _variance_and_mean(write: Writer, arguments: Arguments) -> list[Node] | None:
    x, dim, keepdim = arguments["self"], arguments["dim"], arguments["keepdim"]
    correction = arguments["correction"]
    if dim is None:
        return None
    if correction is None:
        correction = 1
    variance = write(
        _ATEN.var.correction, x, dim, correction=correction, keepdim=keepdim
    )
    mean = write(_ATEN.mean.dim, x, dim, keepdim)
    return [variance, mean]


def _largest(write: Writer, arguments: Arguments) -> list[Node] | None:
    if arguments["k"] != 1 or not arguments["largest"]:
        return None
    x, dim = arguments["self"], arguments["dim"]
    return [write(_ATEN.amax.default, x, [dim], True)]


ARITHMETIC = {
    _ATEN.square.default: _square,
    _ATEN.clamp_min.default: _clamp,
    _ATEN.clamp_max.default: _clamp,
    _ATEN.addcmul.default: _add_product,
    _ATEN.addcdiv.default: _add_quotient,
    _ATEN.baddbmm.default: _add_batched,
    _ATEN.addmm.default: _add_matrices,
    _ATEN.lerp.Scalar: _lerp,
    _ATEN.lerp.Tensor: _lerp_tensor,
    _ATEN.min.default: _minimum,
    _ATEN.aminmax.default: _extremes,
    _ATEN.var_mean.correction: _variance_and_mean,
    _ATEN.topk.default: _largest,
    _ATEN.std.dim: _deviation,
    _ATEN.std.correction: _deviation,
}
