"""A Fourier transform of a constant length is a product with a matrix, as TOSA's integer profile has no other.

A transform over several dimensions is one over each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.island import arguments_by_name
from safe_arm.quantizer.graphs.graph_edits import Writer, tensor_of

_ATEN = torch.ops.aten
#: Maximum number of elements of a matrix: 4 MB in int8, for 2,048 numbers; twice as much if they are complex.
LARGEST_MATRIX = 1 << 22
#: A number of a matrix that is nearer to zero is zero, but for rounding.
_ROUNDING = 1e-9
_Function: TypeAlias = Callable[..., Tensor]
#: The nodes of a real and of an imaginary part.
Pair: TypeAlias = tuple[Node, Node]
#: The same; of real numbers, the latter is None.
Parts: TypeAlias = tuple[Node, Node | None]

#: The function that transforms the last dimension, and that for the others.
_FORWARD = (torch.fft.fft, torch.fft.fft)
_INVERSE = (torch.fft.ifft, torch.fft.ifft)
_OF_REAL = (torch.fft.rfft, torch.fft.fft)
_INVERSE_OF_REAL = (torch.fft.ihfft, torch.fft.ifft)
_TO_REAL = (torch.fft.irfft, torch.fft.ifft)
_FORWARD_TO_REAL = (torch.fft.hfft, torch.fft.fft)
#: Operators that give complex numbers.
TRANSFORMS: dict[Any, tuple[_Function, _Function]] = {
    _ATEN.fft_fft.default: _FORWARD,
    _ATEN.fft_fft2.default: _FORWARD,
    _ATEN.fft_fftn.default: _FORWARD,
    _ATEN.fft_ifft.default: _INVERSE,
    _ATEN.fft_ifft2.default: _INVERSE,
    _ATEN.fft_ifftn.default: _INVERSE,
    _ATEN.fft_rfft.default: _OF_REAL,
    _ATEN.fft_rfft2.default: _OF_REAL,
    _ATEN.fft_rfftn.default: _OF_REAL,
    _ATEN.fft_ihfft.default: _INVERSE_OF_REAL,
    _ATEN.fft_ihfft2.default: _INVERSE_OF_REAL,
    _ATEN.fft_ihfftn.default: _INVERSE_OF_REAL,
}
#: Operators that give real ones.
INVERSES: dict[Any, tuple[_Function, _Function]] = {
    _ATEN.fft_irfft.default: _TO_REAL,
    _ATEN.fft_irfft2.default: _TO_REAL,
    _ATEN.fft_irfftn.default: _TO_REAL,
    _ATEN.fft_hfft.default: _FORWARD_TO_REAL,
    _ATEN.fft_hfft2.default: _FORWARD_TO_REAL,
    _ATEN.fft_hfftn.default: _FORWARD_TO_REAL,
}


@dataclass(frozen=True)
class _Step:
    """A transform over one dimension.

    Attributes:
        function: the function of ``torch.fft``.
        length: how many values it takes, or gives if it gives real ones; None for all of them.
        dim: the dimension.
        norm: how it is scaled, as torch names it.
    """

    function: _Function
    length: int | Node | None
    dim: int
    norm: str | None

    def of(self, rows: Tensor) -> Tensor:
        """Transform each row of a matrix."""
        return self.function(rows, self.length, -1, self.norm)


def write_transform(write: Writer, node: Node, parts: Parts) -> Parts | None:
    """Write a transform as products with matrices.

    Args:
        node: the operator, one of ``TRANSFORMS`` or ``INVERSES``.
        parts: the parts of what it transforms.

    Returns:
        The parts of the result; None if a length is dynamic, or a matrix too large.
    """
    for step in _steps(node, len(shape_of(parts[0]))):
        done = _write_step(write, step, parts)
        if done is None:
            return None
        parts = done
    return parts


def _steps(node: Node, rank: int) -> list[_Step]:
    """Return the transforms over one dimension of which an operator consists, in their order."""
    given = arguments_by_name(node)
    norm = given["norm"]
    last, other = (TRANSFORMS | INVERSES)[node.target]
    if "n" in given:
        return [_Step(last, given["n"], given["dim"], norm)]
    dims, lengths = given["dim"], given["s"]
    if dims is None:
        count = rank if lengths is None else len(lengths)
        dims = range(-count, 0)
    if lengths is None:
        lengths = [None] * len(dims)
    steps = [
        _Step(other, length, dim, norm)
        for dim, length in zip(dims, lengths, strict=True)
    ]
    final = replace(steps.pop(), function=last)
    if node.target in INVERSES:
        return [*steps, final]
    return [final, *steps]


def _write_step(write: Writer, step: _Step, parts: Parts) -> Parts | None:
    """Write a transform of one dimension; None if its length is dynamic, or its matrix too large."""
    real, imaginary = parts
    count = shape_of(real)[step.dim]
    if not isinstance(count, int) or isinstance(step.length, Node):
        return None
    if count * max(count, step.length or 0) > LARGEST_MATRIX:
        return None
    units = torch.eye(count, dtype=torch.float64)
    matrix = step.of(units)
    if imaginary is not None:
        matrix = torch.cat([matrix, step.of(units * 1j)])
        real = write(_ATEN.cat.default, [real, imaginary], step.dim)
    if not matrix.is_complex():
        return _product(write, real, matrix, step.dim, "transform"), None
    of_real = _product(write, real, matrix.real, step.dim, "real_transform")
    of_imaginary = _product(write, real, matrix.imag, step.dim, "imaginary_transform")
    return of_real, of_imaginary


def _product(write: Writer, x: Node, matrix: Tensor, dim: int, name: str) -> Node:
    """Write the product of each row of a dimension with a matrix, as a linear layer."""
    dim %= len(shape_of(x))
    weight = write.constant(transform_weight(matrix), f"{name}_{dim}")
    if dim == len(shape_of(x)) - 1:
        return write(_ATEN.linear.default, x, weight)
    rows = write(_ATEN.transpose.int, x, dim, -1)
    product = write(_ATEN.linear.default, rows, weight)
    return write(_ATEN.transpose.int, product, dim, -1)


def transform_weight(matrix: Tensor) -> Tensor:
    """Return the weight of a layer that multiplies by a matrix, without what is the rounding of zero."""
    weight = matrix.T.contiguous()
    return weight.where(weight.abs() > _ROUNDING, 0).float()


def shape_of(node: Node) -> torch.Size:
    """Return the sizes of a value, dynamic ones included."""
    value = tensor_of(node)
    assert value is not None
    return value.shape
