"""Round real floats as PyTorch does, halves to even (known issue S42)."""

from __future__ import annotations

from safe_arm._compat import upstream
from safe_arm._compat.upstream import (
    EdgeOpOverload,
    ProxyValue,
    exir_ops,
)
from safe_arm.passes.float_operators import FloatOperatorPass, FloatOperators

_ATEN = exir_ops.edge.aten
_ROUND = _ATEN.round.default


class RoundToEvenPass(FloatOperatorPass, upstream.DecomposeRoundPass):
    """Takes apart rounds of the user's graph before the stock pass, which gets only those of quantisers.

    Stock cuts off ``x + 0.5``, which makes 1 of 0.5, and of the odd numbers from 2**23 on the even ones beside them.
    The difference between a float and its floor is exact.
    """

    def apart(
        self, make: FloatOperators, op: EdgeOpOverload, args: tuple[ProxyValue, ...]
    ) -> ProxyValue | None:
        if op is not _ROUND:
            return None
        x = args[0]
        below = make.do(_ATEN.floor.default, x)
        above = make.plus(below, 1.0)
        rest = make.do(_ATEN.sub.Tensor, x, below)
        half = make.do(_ATEN.floor.default, make.times(above, 0.5))
        is_nearer_above = make.above(rest, 0.5)
        nearer = make.where(is_nearer_above, above, make.times(half, 2.0))
        return make.where(make.below(rest, 0.5), below, nearer)
