"""Make of roots and powers what TOSA defines for every base (known issue S23)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from safe_arm._compat.upstream import (
    ArmPass,
    EdgeOpOverload,
    NodeMetadata,
    ProxyValue,
    exir_ops,
)
from safe_arm.core.island import op_name
from safe_arm.passes.applied import applied

_ATEN = exir_ops.edge.aten
_SQRT, _POW, _POW_OF_TENSORS = (
    _ATEN.sqrt.default,
    _ATEN.pow.Tensor_Scalar,
    _ATEN.pow.Tensor_Tensor,
)
#: Whole exponents beyond are left to POW: as many products are made of them.
_LARGEST = 16.0
#: What these give is never below 0.
_NOT_NEGATIVE = frozenset(f"aten::{name}" for name in ("abs", "relu", "exp", "sigmoid"))


class DefinePowersPass(ArmPass):
    """Computes roots and powers of real floats so that TOSA's POW, undefined for a negative base, never sees one.

    Stock makes ``x ** 0.5`` of a square root and leaves ``x ** -3.0`` as it is. RSQRT gives NaN below 0, as PyTorch
    does; reciprocals and products are defined everywhere. With a fractional exponent, or a tensor of exponents, POW is
    given the magnitude, and the other bases their powers apart. Of narrower floats no products are made: each more
    costs a digit.
    """

    _passes_required_after: ClassVar[set[type]] = set()

    def call_operator(
        self,
        op: EdgeOpOverload,
        args: tuple[ProxyValue, ...],
        kwargs: dict[str, object],
        meta: NodeMetadata,
    ) -> ProxyValue:
        call = super().call_operator
        if op not in (_SQRT, _POW, _POW_OF_TENSORS) or self._is_quantized_meta(meta):
            return call(op, args, kwargs, meta)
        value = None
        if exponent := _exponent(op, args):
            value = (
                self._multiplied(args[0], exponent, meta)
                if meta["val"].dtype == torch.float32
                else None
            )
        elif meta["val"].dim() and _is_float(args[0]):
            power = _Power(
                partial(ArmPass.call_operator, self), meta, args[0], self.call_scalar
            )
            value = (
                power.of_tensor(args[1])
                if op is _POW_OF_TENSORS
                else power.of_number(args[1])
            )
        if value is None:
            return call(op, args, kwargs, meta)
        applied(self, value.node)
        return value

    def _multiplied(
        self, value: ProxyValue, exponent: float, meta: NodeMetadata
    ) -> ProxyValue:
        """Return a root, or the product of reciprocals."""
        call = super().call_operator
        if abs(exponent) == 0.5:
            value = call(_ATEN.rsqrt.default, (value,), {}, meta, True)
        if exponent != -0.5:
            value = call(_ATEN.reciprocal.default, (value,), {}, meta, True)
        if exponent < -1:  # DecomposeIntPowPass multiplies it out.
            value = call(_POW, (value, int(-exponent)), {}, meta, True)
        return value


class _Power:
    """One power: makes operators.

    Args:
        call: makes one operator.
        meta: of the power.
        x: the base.
        scalar: makes a tensor of a number.
    """

    def __init__(
        self,
        call: Callable[..., ProxyValue],
        meta: NodeMetadata,
        x: ProxyValue,
        scalar: Callable[[float, NodeMetadata], ProxyValue],
    ) -> None:
        self._call, self._meta, self._x, self._scalar = call, meta, x, scalar

    def of_number(self, exponent: object) -> ProxyValue | None:
        """Return the power of one fraction; None where POW does."""
        x = self._x
        if (
            not isinstance(exponent, float)
            or exponent.is_integer()
            or op_name(x.node) in _NOT_NEGATIVE
        ):
            return None
        below = self._do(_ATEN.rsqrt.default, x)  # NaN; of 0, infinity.
        if exponent > 0:
            power = self._do(_POW, self._do(_ATEN.abs.default, x), exponent)
            return self._where(self._do(_ATEN.lt.Scalar, x, 0.0), below, power)
        above = self._do(_ATEN.gt.Scalar, x, 0.0)
        return self._where(
            above, self._do(_POW, self._where(above, x, self._one()), exponent), below
        )

    def of_tensor(self, y: ProxyValue) -> ProxyValue | None:
        """Return the powers of a tensor of exponents; None where POW does."""
        if not _is_float(y):
            return None
        size, one = self._do(_ATEN.abs.default, self._x), self._one()
        above = self._do(_ATEN.gt.Scalar, size, 0.0)
        power = self._do(_POW_OF_TENSORS, self._where(above, size, one), y)
        of_zero = self._where(self._do(_ATEN.gt.Scalar, y, 0.0), size, one)
        of_zero = self._where(
            self._do(_ATEN.lt.Scalar, y, 0.0),
            self._do(_ATEN.reciprocal.default, size),
            of_zero,
        )
        power = self._where(above, power, of_zero)
        half = self._do(_ATEN.mul.Scalar, y, 0.5)
        signed = self._where(
            self._is_whole(half), power, self._do(_ATEN.mul.Scalar, power, -1.0)
        )
        signed = self._where(
            self._is_whole(y), signed, self._do(_ATEN.rsqrt.default, self._x)
        )
        return self._where(self._do(_ATEN.lt.Scalar, self._x, 0.0), signed, power)

    def _is_whole(self, value: ProxyValue) -> ProxyValue:
        return self._do(_ATEN.eq.Tensor, self._do(_ATEN.floor.default, value), value)

    def _one(self) -> ProxyValue:
        return self._scalar(1.0, self._meta)

    def _where(
        self, condition: ProxyValue, one: ProxyValue, other: ProxyValue
    ) -> ProxyValue:
        return self._do(_ATEN.where.self, condition, one, other)

    def _do(self, op: EdgeOpOverload, *args: ProxyValue | float) -> ProxyValue:
        return self._call(op, args, {}, self._meta, True)


def _is_float(x: ProxyValue) -> bool:
    return isinstance(x.data, Tensor) and x.data.is_floating_point()


def _exponent(op: EdgeOpOverload, args: tuple[Any, ...]) -> float:
    """Return the exponent where stock makes POW of one that needs none, else 0.

    A positive whole one, or a negative one that is an int, it multiplies out itself.
    """
    exponent = 0.5 if op is _SQRT else args[1] if op is _POW else 0.0
    if not isinstance(exponent, float) or abs(exponent) > _LARGEST:
        return 0.0
    return (
        exponent
        if abs(exponent) == 0.5 or (exponent < 0 and exponent.is_integer())
        else 0.0
    )
