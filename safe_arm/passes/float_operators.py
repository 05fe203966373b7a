"""Insert operators on real floats in place of one that a pass decomposes."""

from __future__ import annotations

from safe_arm._compat.upstream import (
    ArmPass,
    EdgeOpOverload,
    NodeMetadata,
    ProxyValue,
    exir_ops,
)

_ATEN = exir_ops.edge.aten


class FloatOperators:
    """Inserts operators, each with the metadata of the operator they replace.

    Args:
        owner: the pass.
        meta: the metadata of the operator that is taken apart.
    """

    def __init__(self, owner: ArmPass, meta: NodeMetadata) -> None:
        self._owner = owner
        self._meta = meta

    def do(self, op: EdgeOpOverload, *args: ProxyValue | float) -> ProxyValue:
        """Insert any operator."""
        return ArmPass.call_operator(self._owner, op, args, {}, self._meta, True)

    def scalar(self, number: float) -> ProxyValue:
        """Return a number as a tensor."""
        return self._owner.call_scalar(number, self._meta)

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
