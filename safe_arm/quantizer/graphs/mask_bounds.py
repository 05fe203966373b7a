"""The constants by which masked softmaxes are recognised."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.quantizer.graphs.constant_values import number_of

#: A score this far below the others has no probability: its exponential is less than a float's step at 1.
MASKED = -80.0
#: A mask is a multiple of this at least; with a lower one no rescale takes it to its limit.
LOWEST = -3e4
#: Places are filled with no smaller number to hide them: -1 may be meant.
SMALLEST_FILL = 16.0
#: A bound beyond every score.
_BEYOND = 2.0**100


def beyond(dtype: torch.dtype) -> float:
    """Return a number beyond every score of a dtype."""
    return min(_BEYOND, torch.finfo(dtype).max / 2)


def bound_of(keep: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor above every score where it is kept, and below every score where it is masked."""
    bound = torch.full(keep.shape, beyond(dtype), dtype=dtype)
    return bound.where(keep, -bound)


def is_bound(value: object) -> bool:
    """Return whether a tensor is such a bound."""
    if not isinstance(value, Tensor):
        return False
    if not value.is_floating_point() or not value.numel():
        return False
    return bool((value.abs() == beyond(value.dtype)).all())


def is_far_number(value: Tensor) -> bool:
    """Return whether a tensor is one number that places are filled with so that nothing takes it."""
    number = number_of(value)
    return number is not None and abs(number) > SMALLEST_FILL


def is_limited_mask(node: object) -> bool:
    """Return whether a node is an additive mask that is limited to finite numbers."""
    if not isinstance(node, Node):
        return False
    if node.target != torch.ops.aten.clamp.default:
        return False
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return False
    if not value.is_floating_point():
        return False
    return node.args[1:] == (-beyond(value.dtype),)
