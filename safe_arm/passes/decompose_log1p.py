"""Compute log1p of real floats to float32's precision, below 0 too (known issue S28)."""

from __future__ import annotations

from safe_arm._compat import upstream
from safe_arm._compat.upstream import (
    EdgeOpOverload,
    ProxyValue,
    exir_ops,
)
from safe_arm.passes.float_operators import FloatOperatorPass, FloatOperators

_ATEN = exir_ops.edge.aten
#: Up to here stock's six terms of the series are 1.5e-7 of log1p off, and log(1 + x) beyond it 6e-7.
_SMALL = 0.1


class DecomposeLog1pPass(FloatOperatorPass, upstream.DecomposeLog1pPass):
    """Takes the place of the stock pass of this name.

    Stock takes the series for every number below 0.001, however far below 0, and log(1 + x) above.
    """

    def apart(
        self, make: FloatOperators, op: EdgeOpOverload, args: tuple[ProxyValue, ...]
    ) -> ProxyValue | None:
        if op != _ATEN.log1p.default:
            return None
        (x,) = args
        large = make.above(make.do(_ATEN.abs.default, x), _SMALL)
        logarithm = make.do(_ATEN.log.default, make.plus(x, 1.0))
        return make.where(large, logarithm, self._poly(x, make.meta))
