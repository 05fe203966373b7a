"""How large the values of a tensor are, and how far they are from those of another."""

from __future__ import annotations

import torch
from torch import Tensor

#: The largest number that a quantiser tells from others: what is beyond, such as the infinity of a mask, is the same.
BEYOND = 2.0**100


def largest(value: Tensor) -> float:
    """Return the largest finite magnitude of a tensor; 0 if there is none."""
    if not value.numel():
        return 0.0
    return float(value.double().abs().nan_to_num(0.0, 0.0, 0.0).max())


def absolute_difference(actual: Tensor, expected: Tensor) -> Tensor:
    """Return how far each value is from the other in double: 0 where both are NaN or infinite alike, else infinite."""
    actual = actual.double()
    expected = expected.double()
    apart = (actual - expected).abs()
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    return apart.masked_fill(same, 0.0).nan_to_num(nan=torch.inf)
