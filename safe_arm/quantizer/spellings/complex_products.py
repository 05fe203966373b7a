"""The parts of a product of complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.quantizer.graphs.graph_edits import tensor_of

_ATEN = torch.ops.aten
#: The real and the imaginary part of a factor; of a real one, the latter is None.
_Parts: TypeAlias = tuple[Any, Any]


@dataclass(frozen=True)
class Product:
    """A product that is linear in each of two factors.

    Attributes:
        function: multiplies two real factors.
        left: the first factor.
        right: the second one.
        dims: the dimension of each factor that the product sums over; None if there is none.
    """

    function: Callable[..., Tensor]
    left: Any
    right: Any
    dims: tuple[int, int] | None = None

    def parts(self, left: _Parts, right: _Parts) -> list[Tensor]:
        """Return the parts of the product of two factors.

        One sum over the parts of both is rounded once, and not each of two products and their sum.
        """
        multiply = self.function
        real, imaginary = left
        other, other_imaginary = right
        if other_imaginary is None:
            return [multiply(real, other), multiply(imaginary, other)]
        if imaginary is None:
            return [multiply(real, other), multiply(real, other_imaginary)]
        if self.dims is None:
            difference = multiply(real, other) - multiply(imaginary, other_imaginary)
            total = multiply(real, other_imaginary) + multiply(imaginary, other)
            return [difference, total]
        one, two = self.dims
        both = torch.cat([real, imaginary], one)
        for_real = torch.cat([other, -other_imaginary], two)
        for_imaginary = torch.cat([other_imaginary, other], two)
        return [multiply(both, for_real), multiply(both, for_imaginary)]


def is_complex(value: object) -> bool:
    """Tell whether a node gives complex numbers."""
    tensor = tensor_of(value)
    return tensor is not None and tensor.is_complex()


def product_of(node: Node) -> Product | None:
    """Return the product that an operator computes; None for any other operator, and one of more factors."""
    target: Any = node.target
    if target is _ATEN.einsum.default:
        return _contraction(node)
    if target not in _SUMMED:
        return None
    left, right = node.args
    dims = _SUMMED[target]
    if target is _ATEN.matmul.default:
        other = tensor_of(right)
        is_vector = other is not None and other.dim() == 1
        dims = (-1, -1) if is_vector else (-1, -2)
    return Product(target, left, right, dims)


#: Operators of two factors, with the dimension of each that is summed over.
_SUMMED: dict[Any, tuple[int, int] | None] = {
    _ATEN.mul.Tensor: None,
    _ATEN.matmul.default: None,
    _ATEN.bmm.default: (2, 1),
    _ATEN.mm.default: (1, 0),
}


def _contraction(einsum: Node) -> Product | None:
    equation: Any
    factors: Any
    equation, factors = einsum.args[:2]
    if len(factors) != 2:
        return None
    function = partial(_einsum, equation)
    left, right = factors
    return Product(function, left, right, _summed_dims(equation))


def _einsum(equation: str, *operands: Tensor) -> Tensor:
    return torch.einsum(equation, *operands)


def _summed_dims(equation: str) -> tuple[int, int] | None:
    """Return the dimensions of two operands of ``einsum`` that it sums over; None if there are none."""
    operands, _, result = equation.replace(" ", "").partition("->")
    left, _, right = operands.partition(",")
    if "." in operands or not result:
        return None
    for place, letter in enumerate(left):
        if letter in right and letter not in result:
            return place, right.index(letter)
    return None
