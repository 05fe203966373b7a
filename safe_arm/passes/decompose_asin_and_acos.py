"""Compute asin and acos of real floats to float32's precision (known issue S24)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from safe_arm._compat import upstream
from safe_arm._compat.upstream import (
    ArmPass,
    EdgeOpOverload,
    NodeMetadata,
    ProxyValue,
    exir_ops,
)
from safe_arm.passes.applied import applied

_ATEN = exir_ops.edge.aten
_ASIN, _ACOS = _ATEN.asin.default, _ATEN.acos.default
#: asin(a) = a + a * t * P(t) / Q(t) with t = a**2, to 1e-9 for a up to 0.5; the coefficients of Sun's fdlibm, e_asin.c.
_P = (
    *(
        1.66666666666666657415e-01,
        -3.25565818622400915405e-01,
        2.01212532134862925881e-01,
    ),
    *(
        -4.00555345006794114027e-02,
        7.91534994289814532176e-04,
        3.47933107596021167570e-05,
    ),
)
_Q = (
    *(1.0, -2.40339491173441421878e00, 2.02094576023350569471e00),
    *(-6.88283971605453293030e-01, 7.70381505559019352791e-02),
)


class DecomposeAsinAndAcosPass(upstream.DecomposeAsinAndAcosPass):
    """Takes the place of the stock pass of this name.

    Stock has the polynomials in x, x**2, x**4 and x**8 where they are meant in x**2, x**4, x**6 and x**8, and is up to
    1.3e-3 off.
    """

    def call_operator(
        self,
        op: EdgeOpOverload,
        args: tuple[ProxyValue, ...],
        kwargs: dict[str, object],
        meta: NodeMetadata,
    ) -> ProxyValue:
        if op not in (_ASIN, _ACOS) or self._is_quantized_meta(meta):
            return super().call_operator(op, args, kwargs, meta)
        angle = _Rational(partial(ArmPass.call_operator, self), meta, args[0]).of(op)
        applied(self, angle.node)
        return angle


class _Rational:
    """One decomposition: makes operators and keeps what they have in common.

    Args:
        call: makes one operator.
        meta: of the operator that is decomposed.
        x: its argument, an angle's sine or cosine.
    """

    def __init__(
        self, call: Callable[..., ProxyValue], meta: NodeMetadata, x: ProxyValue
    ) -> None:
        self._call, self._meta, self._x = call, meta, x

    def of(self, op: EdgeOpOverload) -> ProxyValue:
        """Return the angle."""
        x, large = (
            self._x,
            self._do(
                _ATEN.gt.Scalar, size := self._do(_ATEN.abs.default, self._x), 0.5
            ),
        )
        negative = self._do(_ATEN.lt.Scalar, x, 0.0)
        # For large sines that of half the other angle: sin(u)**2 is (1 - cos(2 * u)) / 2.
        half = self._plus(self._times(size, -0.5), 0.5)
        square = self._where(large, half, self._times(size, size))
        base = self._where(large, self._root(half), size)
        quotient = self._do(
            _ATEN.div.Tensor, self._polynomial(_P, square), self._polynomial(_Q, square)
        )
        angle = self._plus(base, self._times(base, self._times(square, quotient)))
        twice, signed = (
            self._times(angle, 2.0),
            self._where(negative, self._times(angle, -1.0), angle),
        )
        if op is _ACOS:
            wide = self._plus(self._times(twice, -1.0), math.pi)
            return self._where(
                large,
                self._where(negative, wide, twice),
                self._plus(self._times(signed, -1.0), math.pi / 2),
            )
        rest = self._plus(self._times(twice, -1.0), math.pi / 2)
        return self._where(
            large, self._where(negative, self._times(rest, -1.0), rest), signed
        )

    def _root(self, x: ProxyValue) -> ProxyValue:
        """Return the square root, of what is below 0 NaN: TOSA's POW is undefined there (define_powers.py)."""
        return self._do(_ATEN.reciprocal.default, self._do(_ATEN.rsqrt.default, x))

    def _polynomial(self, coefficients: Sequence[float], x: ProxyValue) -> ProxyValue:
        value: ProxyValue | float = coefficients[-1]
        for coefficient in reversed(coefficients[:-1]):
            value = self._plus(self._times(x, value), coefficient)
        return value

    def _plus(self, a: ProxyValue, b: ProxyValue | float) -> ProxyValue:
        return self._do(
            _ATEN.add.Scalar if isinstance(b, float) else _ATEN.add.Tensor, a, b
        )

    def _times(self, a: ProxyValue, b: ProxyValue | float) -> ProxyValue:
        return self._do(
            _ATEN.mul.Scalar if isinstance(b, float) else _ATEN.mul.Tensor, a, b
        )

    def _where(
        self, condition: ProxyValue, one: ProxyValue, other: ProxyValue
    ) -> ProxyValue:
        return self._do(_ATEN.where.self, condition, one, other)

    def _do(self, op: EdgeOpOverload, *args: ProxyValue | float) -> ProxyValue:
        return self._call(op, args, {}, self._meta, True)
