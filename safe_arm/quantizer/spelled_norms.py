"""Spellings of norms that no annotator knows."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import Writer, tensor_of

_ATEN = torch.ops.aten
Arguments = dict[str, Any]


def _instance_norm(write: Writer, arguments: Arguments) -> Node | None:
    """Write a norm over an image without a reshape, which would cost a transpose on the device."""
    x = arguments["input"]
    if not arguments["use_input_stats"]:
        return None
    shape = tensor_of(x).shape  # type: ignore[union-attr]
    dims = list(range(2, len(shape)))
    terms = _count(shape, dims)
    if terms is None:
        return None
    mean = _mean(write, x, dims, terms)
    centred = write(_ATEN.sub.Tensor, x, mean)
    normed = _over_root(write, centred, dims, terms, arguments["eps"])
    across = [1, -1, *(1 for _ in dims)]
    for name, target in (("weight", _ATEN.mul.Tensor), ("bias", _ATEN.add.Tensor)):
        if arguments[name] is not None:
            value = write(_ATEN.view.default, arguments[name], across)
            normed = write(target, normed, value)
    return normed


def _rms_norm(write: Writer, arguments: Arguments) -> Node | None:
    x = arguments["input"]
    shape = tensor_of(x).shape  # type: ignore[union-attr]
    dims = [-1 - index for index in range(len(arguments["normalized_shape"]))]
    terms = _count(shape, dims)
    if terms is None:
        return None
    eps = arguments["eps"]
    if eps is None:
        eps = torch.finfo(torch.float32).eps
    normed = _over_root(write, x, dims, terms, eps)
    if arguments["weight"] is None:
        return normed
    return write(_ATEN.mul.Tensor, normed, arguments["weight"])


def _count(shape: torch.Size, dims: list[int]) -> int | None:
    """Return how many values a mean is taken of; None if that is not known, or 0."""
    sizes = [shape[dim] for dim in dims]
    for size in sizes:
        if not isinstance(size, int) or size == 0:
            return None
    return math.prod(sizes)


def _mean(write: Writer, x: Node, dims: list[int], terms: int) -> Node:
    """Write a mean as the sum that it is, so that what is summed may stay exact."""
    total = write(_ATEN.sum.dim_IntList, x, dims, True)
    return write(_ATEN.mul.Tensor, total, 1 / terms)


def _over_root(write: Writer, x: Node, dims: list[int], terms: int, eps: float) -> Node:
    """Write values divided by the root of their mean square."""
    square = write(_ATEN.mul.Tensor, x, x)
    mean = _mean(write, square, dims, terms)
    raised = write(_ATEN.add.Tensor, mean, eps)
    factor = write(_ATEN.rsqrt.default, raised)
    return write(_ATEN.mul.Tensor, x, factor)


def _linalg_norm(write: Writer, arguments: Arguments) -> Node | None:
    order, dim = arguments["ord"], arguments["dim"]
    if order is not None and (order != 2 or dim is None or len(dim) != 1):
        return None  # Of two dimensions it is a matrix norm.
    return write(
        _ATEN.linalg_vector_norm.default,
        arguments["self"],
        2,
        dim,
        arguments["keepdim"],
    )


NORMS = {
    _ATEN.instance_norm.default: _instance_norm,
    _ATEN.rms_norm.default: _rms_norm,
    _ATEN.linalg_norm.default: _linalg_norm,
}
