"""Spellings of arithmetic that no annotator knows.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import Writer, tensor_of

_ATEN = torch.ops.aten
_PRODUCT = _ATEN.mul.Tensor
_SUM = _ATEN.add.Tensor
_LOWEST = _ATEN.amin.default
_HIGHEST = _ATEN.amax.default
_CLAMP = _ATEN.clamp.default
_MATMUL = _ATEN.matmul.default
_CONTIGUOUS = _ATEN.contiguous.default
#: As the end of a slice: as far as the values go.
_END = torch.iinfo(torch.int64).max


def _square(write: Writer, x: Node) -> Node:
    return write(_PRODUCT, x, x)


def _clamp_min(write: Writer, x: Node, bound: float) -> Node:
    return write(_CLAMP, x, bound)


def _clamp_max(write: Writer, x: Node, bound: float) -> Node:
    return write(_CLAMP, x, None, bound)


def _named(target: Callable[..., Any]) -> Callable[..., Node]:
    """Return the spelling of an operator that has the arguments of another one, and another name."""

    def spelled(write: Writer, *arguments: Any) -> Node:
        return write(target, *arguments)

    return spelled


def _subtract(
    write: Writer,
    x: Node,
    y: Node,
    factor: float,
) -> Node:
    return write(_ATEN.sub.Tensor, x, y, alpha=factor)


def _broadcast(write: Writer, values: list[Node]) -> list[Node] | None:
    """Leave values as they are that have one shape."""
    shapes = set()
    for value in values:
        shapes.add(value.meta["val"].shape)
    if len(shapes) > 1:
        return None
    return values


def _difference(
    write: Writer,
    x: Node,
    count: int,
    dim: int,
    prepended: Node | None,
    appended: Node | None,
) -> Node | None:
    if count != 1:
        return None
    if prepended is not None:
        return None
    if appended is not None:
        return None
    last = write(_ATEN.slice.Tensor, x, dim, 1, _END)
    first = write(_ATEN.slice.Tensor, x, dim, 0, -1)
    return write(_ATEN.sub.Tensor, last, first)


def _dot(write: Writer, x: Node, y: Node) -> Node:
    products = write(_PRODUCT, x, y)
    return write(_ATEN.sum.dim_IntList, products, [0])


def _times_vector(write: Writer, x: Node, y: Node) -> Node | None:
    """Write a vector as a matrix of one column; export makes a product and a sum of one with a vector."""
    if y.meta["val"].dim() != 1:
        return None
    if x.meta["val"].dim() == 1:
        return _dot(write, x, y)
    column = write(_ATEN.unsqueeze.default, y, -1)
    product = write(_MATMUL, x, column)
    return write(_ATEN.squeeze.dim, product, -1)


def _outer(write: Writer, x: Node, y: Node) -> Node:
    column = write(_ATEN.unsqueeze.default, x, 1)
    row = write(_ATEN.unsqueeze.default, y, 0)
    return write(_PRODUCT, column, row)


def _binary_logarithm(write: Writer, x: Node) -> Node:
    natural = write(_ATEN.log.default, x)
    return write(_PRODUCT, natural, 1 / math.log(2))


def _binary_exponential(write: Writer, x: Node) -> Node:
    exponent = write(_PRODUCT, x, math.log(2))
    return write(_ATEN.exp.default, exponent)


def power_of_number(write: Writer, base: float, x: Node) -> Node | None:
    """Write a power of a number; None if it is not positive."""
    if base <= 0:
        return None
    exponent = write(_PRODUCT, x, math.log(base))
    return write(_ATEN.exp.default, exponent)


def _complementary_error(write: Writer, x: Node) -> Node:
    error = write(_ATEN.erf.default, x)
    return write(_ATEN.rsub.Scalar, error, 1)


def _hypotenuse(write: Writer, x: Node, y: Node) -> Node:
    squares = [write(_PRODUCT, side, side) for side in (x, y)]
    total = write(_SUM, *squares)
    return write(_ATEN.sqrt.default, total)


def _add_product(
    write: Writer, x: Node, left: Node, right: Node, factor: float
) -> Node:
    product = write(_PRODUCT, left, right)
    return _add_multiple(write, x, product, factor)


def _add_quotient(
    write: Writer, x: Node, dividend: Node, divisor: Node, factor: float
) -> Node:
    quotient = write(_ATEN.div.Tensor, dividend, divisor)
    return _add_multiple(write, x, quotient, factor)


def _add_multiple(
    write: Writer,
    x: Node,
    other: Node,
    factor: float,
) -> Node:
    if factor != 1:
        other = write(_PRODUCT, other, factor)
    return write(_SUM, x, other)


def _add_batched(
    write: Writer,
    x: Node,
    left: Node,
    right: Node,
    beta: float,
    alpha: float,
) -> Node | None:
    if beta != 1 or alpha != 1:
        return None
    product = write(_ATEN.bmm.default, left, right)
    return write(_SUM, x, product)


def _add_matrices(
    write: Writer,
    bias: Node,
    left: Node,
    right: Node,
    beta: float,
    alpha: float,
) -> Node | None:
    """Write a product with constants as a linear layer, whose weights have a scale for each channel."""
    if beta != 1 or alpha != 1:
        return None
    if not _is_parameter(bias, 1):
        return None
    weight = _weight(write, right)
    if weight is not None:
        return write(_ATEN.linear.default, left, weight, bias)
    product = write(_ATEN.mm.default, left, right)
    return write(_SUM, product, bias)


def _weight(write: Writer, matrix: Node) -> Node | None:
    """Return the weight of the linear layer that multiplies by a matrix; None if the matrix is no constant."""
    if _is_parameter(matrix, 2):
        return write(_ATEN.t.default, matrix)
    if matrix.target is not _ATEN.t.default:
        return None
    weight = matrix.args[0]
    assert isinstance(weight, Node)
    if not _is_parameter(weight, 2):
        return None
    return weight


def _is_parameter(node: Node, rank: int) -> bool:
    value = tensor_of(node)
    if value is None:
        return False
    if node.op != "get_attr":
        return False
    return value.dim() == rank


def _einsum(
    write: Writer, equation: str, operands: list[Node], path: list[int] | None
) -> Node | None:
    """Give a product of many sums operands that stay contiguous.

    Stock writes views of them. A layer norm before it has other strides once stock has taken it apart, and no view of
    those exists.
    """
    if all(
        each.target is _CONTIGUOUS or each.op != "call_function" for each in operands
    ):
        return None
    laid_out = []
    for operand in operands:
        if operand.op == "call_function" and operand.target is not _CONTIGUOUS:
            operand = write(_CONTIGUOUS, operand)
        laid_out.append(operand)
    return write(_ATEN.einsum.default, equation, laid_out, path=path)


def _lerp(
    write: Writer,
    start: Node,
    end: Node,
    weight: float,
) -> Node:
    before = write(_PRODUCT, start, 1 - weight)
    after = write(_PRODUCT, end, weight)
    return write(_SUM, before, after)


def _lerp_tensor(
    write: Writer,
    start: Node,
    end: Node,
    weight: Node,
) -> Node:
    distance = write(_ATEN.sub.Tensor, end, start)
    part = write(_PRODUCT, distance, weight)
    return write(_SUM, start, part)


def _minimum(write: Writer, x: Node) -> Node | None:
    return _extreme(write, _LOWEST, x)


def _maximum(write: Writer, x: Node) -> Node | None:
    return _extreme(write, _HIGHEST, x)


def _extreme(write: Writer, target: Any, x: Node) -> Node | None:
    """Write the extreme of all values as one along all dimensions."""
    value = tensor_of(x)
    if value is None:
        return None
    dims = list(range(value.dim()))
    if not dims:
        return None
    return write(target, x, dims, False)


def _log_odds(write: Writer, x: Node, bound: float | None) -> Node:
    """Write a logit as a difference of logarithms: in a quotient in int8, small odds are all code 0."""
    if bound is not None:
        x = write(_CLAMP, x, bound, 1 - bound)
    rest = write(_ATEN.rsub.Scalar, x, 1)
    lost = write(_ATEN.log.default, rest)
    won = write(_ATEN.log.default, x)
    return write(_ATEN.sub.Tensor, won, lost)


def _larger(write: Writer, x: Node, y: Node) -> Node:
    return write(_ATEN.maximum.default, x, y)


def _smaller(write: Writer, x: Node, y: Node) -> Node:
    return write(_ATEN.minimum.default, x, y)


def _extremes(
    write: Writer, x: Node, dim: int | None, keepdim: bool
) -> list[Node] | None:
    if dim is None:
        return None
    lowest = write(_LOWEST, x, [dim], keepdim)
    highest = write(_HIGHEST, x, [dim], keepdim)
    return [lowest, highest]


def _largest(
    write: Writer,
    x: Node,
    count: int,
    dim: int,
    largest: bool,
    *_: Any,
) -> list[Node] | None:
    if count != 1 or not largest:
        return None
    if write.picks(1):
        return None
    values = write(_HIGHEST, x, [dim], True)
    return [values]


def _deviation(write: Writer, x: Node, *how: Any) -> Node | None:
    variance = _variance(write, x, *how)
    if variance is None:
        return None
    return write(_ATEN.sqrt.default, variance)


def _deviation_of_all(write: Writer, x: Node, is_unbiased: bool) -> Node | None:
    return _deviation(write, x, None, is_unbiased, False)


def _variance_of_all(write: Writer, x: Node, is_unbiased: bool) -> Node | None:
    return _variance(write, x, None, is_unbiased, False)


def _variance_and_mean(
    write: Writer,
    x: Node,
    dim: list[int] | None,
    correction: float | None,
    keepdim: bool,
) -> list[Node] | None:
    variance = _variance(write, x, dim, correction, keepdim)
    if variance is None:
        return None
    mean = write(_ATEN.mean.dim, x, dim, keepdim)
    return [variance, mean]


def _deviation_and_mean(write: Writer, x: Node, *how: Any) -> list[Node] | None:
    both = _variance_and_mean(write, x, *how)
    if both is None:
        return None
    variance, mean = both
    return [write(_ATEN.sqrt.default, variance), mean]


def _variance(
    write: Writer,
    x: Node,
    dim: list[int] | None,
    correction: float | None,
    keepdim: bool,
) -> Node | None:
    """Write a variance; its correction may be a truth value, and is 1 if it is None. Without dims it is of all."""
    if dim is None:
        dim = list(range(x.meta["val"].dim()))
    if not dim:
        return None
    if correction is None:
        correction = 1
    how = {"correction": int(correction), "keepdim": keepdim}
    return write(_ATEN.var.correction, x, dim, **how)


ARITHMETIC = {
    _ATEN.einsum.default: _einsum,
    _ATEN.square.default: _square,
    _ATEN.clamp_min.default: _clamp_min,
    _ATEN.clamp_max.default: _clamp_max,
    _ATEN.clamp_min.Tensor: _larger,
    _ATEN.clamp_max.Tensor: _smaller,
    _ATEN.clip.default: _named(_CLAMP),
    _ATEN.clip.Tensor: _named(_ATEN.clamp.Tensor),
    _ATEN.absolute.default: _named(_ATEN.abs.default),
    _ATEN.negative.default: _named(_ATEN.neg.default),
    _ATEN.special_expit.default: _named(_ATEN.sigmoid.default),
    _ATEN.multiply.Tensor: _named(_PRODUCT),
    _ATEN.divide.Tensor: _named(_ATEN.div.Tensor),
    _ATEN.true_divide.Tensor: _named(_ATEN.div.Tensor),
    _ATEN.subtract.Tensor: _subtract,
    _ATEN.broadcast_tensors.default: _broadcast,
    _ATEN.diff.default: _difference,
    _ATEN.dot.default: _dot,
    _ATEN.vdot.default: _dot,
    _MATMUL: _times_vector,
    _ATEN.mv.default: _times_vector,
    _ATEN.outer.default: _outer,
    _ATEN.ger.default: _outer,
    _ATEN.log2.default: _binary_logarithm,
    _ATEN.exp2.default: _binary_exponential,
    _ATEN.pow.Scalar: power_of_number,
    _ATEN.erfc.default: _complementary_error,
    _ATEN.fmax.default: _larger,
    _ATEN.fmin.default: _smaller,
    _ATEN.hypot.default: _hypotenuse,
    _ATEN.addcmul.default: _add_product,
    _ATEN.addcdiv.default: _add_quotient,
    _ATEN.baddbmm.default: _add_batched,
    _ATEN.addmm.default: _add_matrices,
    _ATEN.lerp.Scalar: _lerp,
    _ATEN.lerp.Tensor: _lerp_tensor,
    _ATEN.logit.default: _log_odds,
    _ATEN.max.other: _larger,
    _ATEN.min.other: _smaller,
    _ATEN.max.default: _maximum,
    _ATEN.min.default: _minimum,
    _ATEN.aminmax.default: _extremes,
    _ATEN.topk.default: _largest,
    _ATEN.var.default: _variance_of_all,
    _ATEN.std.default: _deviation_of_all,
    _ATEN.std.dim: _deviation,
    _ATEN.std.correction: _deviation,
    _ATEN.std_mean.dim: _deviation_and_mean,
    _ATEN.std_mean.correction: _deviation_and_mean,
    _ATEN.var_mean.dim: _variance_and_mean,
    _ATEN.var_mean.correction: _variance_and_mean,
}
