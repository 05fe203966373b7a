"""Compute asin and acos of real floats to float32's precision (known issue S24)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from safe_arm._compat import upstream
from safe_arm._compat.upstream import (
    EdgeOpOverload,
    ProxyValue,
    exir_ops,
)
from safe_arm.passes.float_operators import FloatOperatorPass, FloatOperators

_ATEN = exir_ops.edge.aten
_ASIN = _ATEN.asin.default
_ACOS = _ATEN.acos.default
#: asin(a) = a + a * t * P(t) / Q(t) with t = a**2, to 1e-9 for a up to 0.5; the coefficients of Sun's fdlibm, e_asin.c.
_P = (
    1.66666666666666657415e-01,
    -3.25565818622400915405e-01,
    2.01212532134862925881e-01,
    -4.00555345006794114027e-02,
    7.91534994289814532176e-04,
    3.47933107596021167570e-05,
)
_Q = (
    1.0,
    -2.40339491173441421878e00,
    2.02094576023350569471e00,
    -6.88283971605453293030e-01,
    7.70381505559019352791e-02,
)


class DecomposeAsinAndAcosPass(FloatOperatorPass, upstream.DecomposeAsinAndAcosPass):
    """Takes the place of the stock pass of this name.

    Stock evaluates the polynomials in x, x**2, x**4 and x**8 instead of x**2, x**4, x**6 and x**8, and is up to 1.3e-3
    off.
    """

    def apart(
        self, make: FloatOperators, op: EdgeOpOverload, args: tuple[ProxyValue, ...]
    ) -> ProxyValue | None:
        if op not in (_ASIN, _ACOS):
            return None
        return _angle(make, args[0], op)


def _angle(make: FloatOperators, x: ProxyValue, op: EdgeOpOverload) -> ProxyValue:
    """Return the angle of a sine or cosine."""
    size = make.do(_ATEN.abs.default, x)
    large = make.above(size, 0.5)
    negative = make.below(x, 0.0)
    # A large sine is replaced by that of half the other angle: sin(u)**2 is (1 - cos(2 * u)) / 2.
    half = make.plus(make.times(size, -0.5), 0.5)
    square = make.where(large, half, make.times(size, size))
    # The root of a number below 0 is NaN: TOSA's POW is undefined there (define_powers.py).
    inverse = make.do(_ATEN.rsqrt.default, half)
    root = make.do(_ATEN.reciprocal.default, inverse)
    base = make.where(large, root, size)
    dividend = _polynomial(make, _P, square)
    divisor = _polynomial(make, _Q, square)
    quotient = make.do(_ATEN.div.Tensor, dividend, divisor)
    angle = make.plus(base, make.times(base, make.times(square, quotient)))
    twice = make.times(angle, 2.0)
    signed = make.where(negative, make.times(angle, -1.0), angle)
    if op is _ACOS:
        wide = make.plus(make.times(twice, -1.0), math.pi)
        of_large = make.where(negative, wide, twice)
        of_small = make.plus(make.times(signed, -1.0), math.pi / 2)
        return make.where(large, of_large, of_small)
    rest = make.plus(make.times(twice, -1.0), math.pi / 2)
    of_large = make.where(negative, make.times(rest, -1.0), rest)
    return make.where(large, of_large, signed)


def _polynomial(
    make: FloatOperators, coefficients: Sequence[float], x: ProxyValue
) -> ProxyValue:
    value: ProxyValue | float = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        value = make.plus(make.times(x, value), coefficient)
    return value
