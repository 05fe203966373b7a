"""Functions that round, or take a remainder, in terms of operators that the annotators know.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

_ATEN = torch.ops.aten


def _towards_zero(x: Tensor) -> Tensor:
    return torch.where(x < 0, x.ceil(), x.floor())


def _fraction(x: Tensor) -> Tensor:
    return x - _towards_zero(x)


def _to_decimals(x: Tensor, decimals: int) -> Tensor:
    factor = 10.0**decimals
    return (x * factor).round() * (1 / factor)


def _signed_remainder(x: Tensor, divisor: float) -> Tensor | None:
    """Return a remainder of the sign of what is divided; ``remainder`` gives one of the sign of the divisor."""
    if divisor == 0:
        return None
    size = abs(float(divisor))
    return torch.where(x < 0, -((-x) % size), x % size)


def _to_finite(
    x: Tensor,
    nan: float | None = None,
    highest: float | None = None,
    lowest: float | None = None,
) -> Tensor | None:
    """Return numbers in place of what is none: a NaN alone differs from itself."""
    if highest is not None or lowest is not None:
        return None
    number = torch.where(x == x, x, nan or 0.0)
    limits = torch.finfo(x.dtype)
    return number.clamp(limits.min, limits.max)


#: The spellings by their operators.
ROUNDINGS = {
    _ATEN.trunc.default: _towards_zero,
    _ATEN.frac.default: _fraction,
    _ATEN.round.decimals: _to_decimals,
    _ATEN.fmod.Scalar: _signed_remainder,
    _ATEN.nan_to_num.default: _to_finite,
}
