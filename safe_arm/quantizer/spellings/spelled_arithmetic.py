"""Arithmetic that no annotator knows, in terms of operators that one does.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    depends_on_input,
    static_sizes,
    tensor_of,
)
from safe_arm.quantizer.spellings.high_ranks import MOST_DIMENSIONS
from safe_arm.quantizer.spellings.spelled_products import contracted_by_groups

_ATEN = torch.ops.aten
_CONTIGUOUS = _ATEN.contiguous.default


def _square(x: Tensor) -> Tensor:
    return x * x


def _reversed_difference(x: Tensor, y: Tensor, factor: float = 1) -> Tensor:
    return torch.sub(y, x, alpha=factor)


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum([0])


def _times_vector(x: Tensor, y: Tensor) -> Tensor | None:
    """Return a product with a vector as with a matrix of one column.

    Export makes a product and a sum of one with a vector.
    """
    if y.dim() != 1:
        return None
    if x.dim() == 1:
        return _dot(x, y)
    return (x @ y.unsqueeze(-1)).squeeze(-1)


def _binary_logarithm(x: Tensor) -> Tensor:
    return x.log() * (1 / math.log(2))


def _binary_exponential(x: Tensor) -> Tensor:
    return (x * math.log(2)).exp()


def power_of_number(base: float, x: Tensor) -> Tensor | None:
    """Return a power of a number; None if it is not positive."""
    if base <= 0:
        return None
    return (x * math.log(base)).exp()


def _complementary_error(x: Tensor) -> Tensor:
    return 1 - x.erf()


def _hypotenuse(x: Tensor, y: Tensor) -> Tensor:
    return (x * x + y * y).sqrt()


def _add_product(x: Tensor, left: Tensor, right: Tensor, factor: float) -> Tensor:
    if factor == -1:
        return x - left * right
    return x + _multiple(left, factor) * right


def _add_quotient(
    x: Tensor, dividend: Tensor, divisor: Tensor, factor: float
) -> Tensor:
    if factor == -1:
        return x - dividend / divisor
    return x + _multiple(dividend, factor) / divisor


def _multiple(x: Tensor, factor: float) -> Tensor:
    """Return a multiple of an operand; one of a product or a quotient is rounded once more before it is added."""
    return x if factor == 1 else x * factor


def _add_batched(
    x: Tensor, left: Tensor, right: Tensor, beta: float, alpha: float
) -> Tensor | None:
    if beta != 1 or alpha != 1:
        return None
    return x + left.bmm(right)


def _lerp(start: Tensor, end: Tensor, weight: float) -> Tensor:
    return start * (1 - weight) + end * weight


def _lerp_tensor(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    # Two products are added exactly; a difference would be rounded before.
    return start * (1 - weight) + end * weight


def _lowest(x: Tensor) -> Tensor | None:
    return x.amin(list(range(x.dim()))) if x.dim() else None


def _highest(x: Tensor) -> Tensor | None:
    return x.amax(list(range(x.dim()))) if x.dim() else None


def _log_odds(x: Tensor, bound: float | None) -> Tensor:
    """Return a logit as a difference of logarithms: in a quotient in int8, small odds are all code 0."""
    if bound is not None:
        x = x.clamp(bound, 1 - bound)
    lost = (1 - x).log()
    return x.log() - lost


def _extremes(x: Tensor, dim: int | None, keepdim: bool) -> list[Tensor] | None:
    dims = list(range(x.dim())) if dim is None else [dim]
    if not dims:
        return None
    return [x.amin(dims, keepdim), x.amax(dims, keepdim)]


def _largest(
    x: Tensor, count: int, dim: int, largest: bool, *_: Any
) -> list[Tensor] | None:
    """Return the largest value, or the smallest one, without its place."""
    if count != 1:
        return None
    if not largest:
        return [x.amin([dim], True)]
    return [x.amax([dim], True)]


def _deviation(x: Tensor, *how: Any) -> Tensor | None:
    variance = _variance(x, *how)
    return None if variance is None else variance.sqrt()


def _deviation_of_all(x: Tensor, is_unbiased: bool) -> Tensor | None:
    return _deviation(x, None, is_unbiased, False)


def _variance_of_all(x: Tensor, is_unbiased: bool) -> Tensor | None:
    return _variance(x, None, is_unbiased, False)


def _variance_and_mean(
    x: Tensor, dim: list[int] | None, correction: float | None, keepdim: bool
) -> list[Tensor] | None:
    variance = _variance(x, dim, correction, keepdim)
    if variance is None:
        return None
    return [variance, x.mean(dim, keepdim)]


def _variance_and_mean_of_all(x: Tensor, is_unbiased: bool) -> list[Tensor] | None:
    return _variance_and_mean(x, None, is_unbiased, False)


def _deviation_and_mean_of_all(x: Tensor, is_unbiased: bool) -> list[Tensor] | None:
    return _deviation_and_mean(x, None, is_unbiased, False)


def _deviation_and_mean(x: Tensor, *how: Any) -> list[Tensor] | None:
    both = _variance_and_mean(x, *how)
    if both is None:
        return None
    return [both[0].sqrt(), both[1]]


def _variance(
    x: Tensor, dim: list[int] | None, correction: float | None, keepdim: bool
) -> Tensor | None:
    """Return a variance; its correction may be a truth value, and is 1 if it is None. Without dims it is of all."""
    if dim is None:
        dim = list(range(x.dim()))
    if not dim:
        return None
    if correction is None:
        correction = 1
    return x.var(dim, correction=int(correction), keepdim=keepdim)


def _with_sign(x: Tensor, sign: float) -> Tensor:
    return x.abs() * math.copysign(1.0, sign)


ARITHMETIC = {
    _ATEN.square.default: _square,
    _ATEN.clamp_min.default: torch._refs.clamp_min,
    _ATEN.clamp_max.default: torch._refs.clamp_max,
    _ATEN.clamp_min.Tensor: torch.maximum,
    _ATEN.clamp_max.Tensor: torch.minimum,
    _ATEN.dot.default: _dot,
    _ATEN.vdot.default: _dot,
    _ATEN.matmul.default: _times_vector,
    _ATEN.mv.default: _times_vector,
    _ATEN.log2.default: _binary_logarithm,
    _ATEN.exp2.default: _binary_exponential,
    _ATEN.pow.Scalar: power_of_number,
    _ATEN.erfc.default: _complementary_error,
    _ATEN.deg2rad.default: torch._refs.deg2rad,
    _ATEN.rad2deg.default: torch._refs.rad2deg,
    _ATEN.sgn.default: torch.sign,
    _ATEN.copysign.Scalar: _with_sign,
    _ATEN.fmax.default: torch.maximum,
    _ATEN.fmin.default: torch.minimum,
    _ATEN.hypot.default: _hypotenuse,
    _ATEN.addcmul.default: _add_product,
    _ATEN.addcdiv.default: _add_quotient,
    _ATEN.baddbmm.default: _add_batched,
    _ATEN.lerp.Scalar: _lerp,
    _ATEN.lerp.Tensor: _lerp_tensor,
    _ATEN.logit.default: _log_odds,
    _ATEN.max.other: torch.maximum,
    _ATEN.min.other: torch.minimum,
    _ATEN.max.default: _highest,
    _ATEN.min.default: _lowest,
    _ATEN.aminmax.default: _extremes,
    _ATEN.topk.default: _largest,
    _ATEN.var.default: _variance_of_all,
    _ATEN.std.default: _deviation_of_all,
    _ATEN.std.dim: _deviation,
    _ATEN.std.correction: _deviation,
    _ATEN.rsub.Tensor: _reversed_difference,
    _ATEN.std_mean.default: _deviation_and_mean_of_all,
    _ATEN.var_mean.default: _variance_and_mean_of_all,
    _ATEN.std_mean.dim: _deviation_and_mean,
    _ATEN.std_mean.correction: _deviation_and_mean,
    _ATEN.var_mean.dim: _variance_and_mean,
    _ATEN.var_mean.correction: _variance_and_mean,
}


def _add_matrices(
    write: Writer, bias: Node, left: Node, right: Node, beta: float, alpha: float
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
    return write(_ATEN.add.Tensor, product, bias)


def _weight(write: Writer, matrix: Node) -> Node | None:
    """Return the weight of the linear layer that multiplies by a matrix; None if the matrix is no constant."""
    if _is_parameter(matrix, 2):
        return write(_ATEN.t.default, matrix)
    if matrix.target is not _ATEN.t.default:
        return None
    weight = matrix.all_input_nodes[0]
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
    those exists. A product of two operands with more letters than TOSA has dimensions is one of matrices.
    """
    letters = {letter for letter in equation if letter.isalpha()}
    are_static = all(static_sizes(each) is not None for each in operands)
    if len(letters) > MOST_DIMENSIONS and len(operands) == 2 and are_static:
        product: Node | None
        product = write.compute(contracted_by_groups, (equation, *operands))
        if product is not None:
            return product
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


def _step(write: Writer, x: Node, at_zero: Node) -> Node | None:
    """Write a step whose value at 0 is constant; one that is computed may have a domain in which 1 is rounded."""
    if depends_on_input(at_zero):
        return None
    written: Node = write.compute(_step_of, (x, at_zero))
    return written


def _step_of(x: Tensor, at_zero: Tensor) -> Tensor:
    return torch.where(x > 0, 1.0, torch.where(x < 0, 0.0, at_zero))


#: Spellings that look at the nodes of the graph.
ARITHMETIC_OF_NODES = {
    _ATEN.heaviside.default: _step,
    _ATEN.addmm.default: _add_matrices,
    _ATEN.einsum.default: _einsum,
}
