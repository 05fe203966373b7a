"""Insert operators on real floats in place of one that a pass decomposes."""

from __future__ import annotations

from safe_arm._compat.upstream import (
    ArmPass,
    EdgeOpOverload,
    NodeMetadata,
    ProxyValue,
    exir_ops,
)
from safe_arm.passes.applied import applied

_ATEN = exir_ops.edge.aten


class FloatOperators:
    """Inserts operators, each with the metadata of the operator they replace.

    Args:
        owner: the pass.
        meta: the metadata of the operator that is taken apart.

    Attributes:
        meta: as given.
    """

    def __init__(self, owner: ArmPass, meta: NodeMetadata) -> None:
        self._owner = owner
        self.meta = meta

    def do(self, op: EdgeOpOverload, *args: ProxyValue | float) -> ProxyValue:
        """Insert any operator."""
        return ArmPass.call_operator(self._owner, op, args, {}, self.meta, True)

    def scalar(self, number: float) -> ProxyValue:
        """Return a number as a tensor."""
        return self._owner.call_scalar(number, self.meta)

    def plus(self, a: ProxyValue, b: ProxyValue | float) -> ProxyValue:
        """Add a tensor or a number."""
        op = _ATEN.add.Scalar if isinstance(b, float) else _ATEN.add.Tensor
        return self.do(op, a, b)

    def times(self, a: ProxyValue, b: ProxyValue | float) -> ProxyValue:
        """Multiply by a tensor or a number."""
        op = _ATEN.mul.Scalar if isinstance(b, float) else _ATEN.mul.Tensor
        return self.do(op, a, b)

    def above(self, x: ProxyValue, number: float) -> ProxyValue:
        """Compare: x > number."""
        return self.do(_ATEN.gt.Scalar, x, number)

    def below(self, x: ProxyValue, number: float) -> ProxyValue:
        """Compare: x < number."""
        return self.do(_ATEN.lt.Scalar, x, number)

    def where(
        self, condition: ProxyValue, one: ProxyValue, other: ProxyValue
    ) -> ProxyValue:
        """Choose the one where a condition holds, else the other."""
        return self.do(_ATEN.where.self, condition, one, other)


class FloatOperatorPass(ArmPass):
    """A pass that takes operators on real floats apart in a way of its own; stock's takes the others."""

    def call_operator(
        self,
        op: EdgeOpOverload,
        args: tuple[ProxyValue, ...],
        kwargs: dict[str, object],
        meta: NodeMetadata,
    ) -> ProxyValue:
        if not self._is_quantized_meta(meta):
            value = self.apart(FloatOperators(self, meta), op, args)
            if value is not None:
                applied(self, value.node)
                return value
        return super().call_operator(op, args, kwargs, meta)

    def apart(
        self, make: FloatOperators, op: EdgeOpOverload, args: tuple[ProxyValue, ...]
    ) -> ProxyValue | None:
        """Return the value of an operator in others; None if the operator is left to stock."""
        raise NotImplementedError
