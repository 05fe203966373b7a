"""Make of roots and powers what TOSA defines for every base (known issue S23)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from safe_arm._compat.upstream import ArmPass, EdgeOpOverload, NodeMetadata, ProxyValue, exir_ops
from safe_arm.passes.applied import applied

_ATEN = exir_ops.edge.aten
_SQRT, _POW = _ATEN.sqrt.default, _ATEN.pow.Tensor_Scalar
#: Exponents beyond are left to POW: as many products are made of them.
_LARGEST = 16.0


class DefinePowersPass(ArmPass):
    """Computes roots and powers of real floats without TOSA's POW, which is undefined for a negative base.

    Stock makes ``x ** 0.5`` of a square root and leaves ``x ** -3.0`` as it is. RSQRT gives NaN below 0, as PyTorch
    does; reciprocals and products are defined everywhere. Other fractional exponents stay POW, and so do narrower
    floats, of which each product more costs a digit.
    """

    _passes_required_after: ClassVar[set[type]] = set()

    def call_operator(
        self, op: EdgeOpOverload, args: tuple[ProxyValue, ...], kwargs: dict[str, object], meta: NodeMetadata
    ) -> ProxyValue:
        exponent = _exponent(op, args)
        if self._is_quantized_meta(meta) or not exponent or meta["val"].dtype != torch.float32:
            return super().call_operator(op, args, kwargs, meta)
        value, call = args[0], super().call_operator
        if abs(exponent) == 0.5:
            value = call(_ATEN.rsqrt.default, (value,), {}, meta, True)
        if exponent != -0.5:
            value = call(_ATEN.reciprocal.default, (value,), {}, meta, True)
        if exponent < -1:  # DecomposeIntPowPass multiplies it out.
            value = call(_POW, (value, int(-exponent)), {}, meta, True)
        applied(self, value.node)
        return value


def _exponent(op: EdgeOpOverload, args: tuple[Any, ...]) -> float:
    """Return the exponent where stock makes POW of one that needs none, else 0.

    A positive whole one, or a negative one that is an int, it multiplies out itself.
    """
    exponent = 0.5 if op is _SQRT else args[1] if op is _POW else 0.0
    if not isinstance(exponent, float) or abs(exponent) > _LARGEST:
        return 0.0
    return exponent if abs(exponent) == 0.5 or (exponent < 0 and exponent.is_integer()) else 0.0
