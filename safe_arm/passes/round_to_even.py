"""Round real floats as PyTorch does: what lies in the middle goes to the even side (known issue S42)."""

from __future__ import annotations

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
_ROUND = _ATEN.round.default


class RoundToEvenPass(upstream.DecomposeRoundPass):
    """Takes apart rounds of the user's graph before the stock pass, which is left those of quantisers.

    Stock cuts off ``x + 0.5``, which makes 1 of 0.5, and of the odd numbers from 2**23 on the even ones beside them.
    What a float is above its floor is exact.
    """

    def call_operator(
        self,
        op: EdgeOpOverload,
        args: tuple[ProxyValue, ...],
        kwargs: dict[str, object],
        meta: NodeMetadata,
    ) -> ProxyValue:
        if op is not _ROUND or self._is_quantized_meta(meta):
            return super().call_operator(op, args, kwargs, meta)
        call = partial(ArmPass.call_operator, self, kwargs={}, meta=meta, updated=True)
        below = call(_ATEN.floor.default, (args[0],))
        above = call(_ATEN.add.Scalar, (below, 1.0))
        rest = call(_ATEN.sub.Tensor, (args[0], below))
        half = call(_ATEN.floor.default, (call(_ATEN.mul.Scalar, (above, 0.5)),))
        nearer = call(
            _ATEN.where.self,
            (
                call(_ATEN.gt.Scalar, (rest, 0.5)),
                above,
                call(_ATEN.mul.Scalar, (half, 2.0)),
            ),
        )
        rounded = call(
            _ATEN.where.self, (call(_ATEN.lt.Scalar, (rest, 0.5)), below, nearer)
        )
        applied(self, rounded.node)
        return rounded
