"""Rewrite roots and powers in operators that TOSA defines for every base (known issue S23)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from safe_arm._compat.upstream import (
    EdgeOpOverload,
    ProxyValue,
    exir_ops,
)
from safe_arm.core.island import op_name
from safe_arm.core.operators import named
from safe_arm.passes.float_operators import FloatOperatorPass, FloatOperators

_ATEN = exir_ops.edge.aten
_SQRT = _ATEN.sqrt.default
_POW = _ATEN.pow.Tensor_Scalar
_POW_OF_TENSORS = _ATEN.pow.Tensor_Tensor
#: Larger whole exponents are left to POW, because a power becomes as many products.
_LARGEST = 16.0
#: Operators whose values are never below 0.
_NOT_NEGATIVE = named("abs relu exp sigmoid")


class DefinePowersPass(FloatOperatorPass):
    """Computes roots and powers of real floats so that TOSA's POW, undefined for a negative base, never sees one.

    Stock makes ``x ** 0.5`` of a square root and leaves ``x ** -3.0`` as it is. RSQRT gives NaN below 0, as PyTorch
    does; reciprocals and products are defined everywhere. With a fractional exponent, or a tensor of exponents, POW
    reads the magnitude, and the powers of other bases are computed apart. Narrower floats are not multiplied out: each
    product costs a digit.
    """

    _passes_required_after: ClassVar[set[type]] = set()

    def apart(
        self, make: FloatOperators, op: EdgeOpOverload, args: tuple[ProxyValue, ...]
    ) -> ProxyValue | None:
        if op not in (_SQRT, _POW, _POW_OF_TENSORS):
            return None
        exponent = _exponent(op, args)
        if exponent:
            if make.meta["val"].dtype != torch.float32:
                return None
            return _multiplied(make, args[0], exponent)
        if not make.meta["val"].dim() or not _is_float(args[0]):
            return None
        if op is _POW_OF_TENSORS:
            return _power_of_tensor(make, args[0], args[1])
        return _power_of_number(make, args[0], args[1])


def _multiplied(make: FloatOperators, x: ProxyValue, exponent: float) -> ProxyValue:
    """Return a root, or the product of reciprocals."""
    if abs(exponent) == 0.5:
        x = make.do(_ATEN.rsqrt.default, x)
    if exponent != -0.5:
        x = make.do(_ATEN.reciprocal.default, x)
    if exponent < -1:  # DecomposeIntPowPass multiplies it out.
        x = make.do(_POW, x, int(-exponent))
    return x


def _power_of_number(
    make: FloatOperators, x: ProxyValue, exponent: object
) -> ProxyValue | None:
    """Return the power of one fraction; None where POW is defined."""
    if not isinstance(exponent, float) or exponent.is_integer():
        return None
    if op_name(x.node) in _NOT_NEGATIVE:
        return None
    undefined = make.do(_ATEN.rsqrt.default, x)  # NaN below 0; infinity at 0.
    if exponent > 0:
        size = make.do(_ATEN.abs.default, x)
        power = make.do(_POW, size, exponent)
        return make.where(make.below(x, 0.0), undefined, power)
    above = make.above(x, 0.0)
    base = make.where(above, x, make.scalar(1.0))
    return make.where(above, make.do(_POW, base, exponent), undefined)


def _power_of_tensor(
    make: FloatOperators, x: ProxyValue, y: ProxyValue
) -> ProxyValue | None:
    """Return the powers of a tensor of exponents; None where POW is defined."""
    if not _is_float(y):
        return None
    size = make.do(_ATEN.abs.default, x)
    one = make.scalar(1.0)
    above = make.above(size, 0.0)
    power = make.do(_POW_OF_TENSORS, make.where(above, size, one), y)
    of_zero = make.where(make.above(y, 0.0), size, one)
    below = make.below(y, 0.0)
    infinite = make.do(_ATEN.reciprocal.default, size)
    of_zero = make.where(below, infinite, of_zero)
    power = make.where(above, power, of_zero)
    is_even = _is_whole(make, make.times(y, 0.5))
    signed = make.where(is_even, power, make.times(power, -1.0))
    is_whole = _is_whole(make, y)
    signed = make.where(is_whole, signed, make.do(_ATEN.rsqrt.default, x))
    return make.where(make.below(x, 0.0), signed, power)


def _is_whole(make: FloatOperators, value: ProxyValue) -> ProxyValue:
    floor = make.do(_ATEN.floor.default, value)
    return make.do(_ATEN.eq.Tensor, floor, value)


def _is_float(x: ProxyValue) -> bool:
    return isinstance(x.data, Tensor) and x.data.is_floating_point()


def _exponent(op: EdgeOpOverload, args: tuple[Any, ...]) -> float:
    """Return the exponent where stock makes POW of one that needs none, else 0.

    A positive whole one, or a negative one that is an int, it multiplies out itself.
    """
    if op is _POW_OF_TENSORS:
        return 0.0
    exponent = 0.5 if op is _SQRT else args[1]
    if not isinstance(exponent, float) or abs(exponent) > _LARGEST:
        return 0.0
    is_root = abs(exponent) == 0.5
    is_whole_below_0 = exponent < 0 and exponent.is_integer()
    if is_root or is_whole_below_0:
        return exponent
    return 0.0
