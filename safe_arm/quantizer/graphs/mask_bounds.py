"""The constants by which masked softmaxes are recognised."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.attributes import stored_value
from safe_arm.core.differences import BEYOND
from safe_arm.quantizer.graphs.constant_values import number_of
from safe_arm.quantizer.graphs.graph_edits import is_stored, stored_number

#: A score this far below the others has no probability: its exponential is less than a float's step at 1.
MASKED = -80.0
#: The most that is left of a log-probability that is masked.
HIDDEN = MASKED / 2
#: A mask is a multiple of this at least; with a lower one no rescale takes it to its limit.
LOWEST = -3e4
#: Places are filled with no smaller number to hide them: -1 may be meant.
SMALLEST_FILL = 16.0


def beyond(dtype: torch.dtype) -> float:
    """Return a number beyond every score of a dtype."""
    return min(BEYOND, torch.finfo(dtype).max / 2)


def bound_of(
    keep: Tensor, dtype: torch.dtype, low: Tensor | float = -math.inf
) -> Tensor:
    """Return a tensor above every score where it is kept, and a low number, or none below all, where it is masked."""
    bound = torch.full(keep.shape, beyond(dtype), dtype=dtype)
    hidden = torch.as_tensor(low, dtype=dtype).clamp(min=-beyond(dtype))
    return bound.where(keep, hidden)


def is_bound(value: object) -> bool:
    """Return whether a tensor is such a bound."""
    if not isinstance(value, Tensor):
        return False
    if not value.is_floating_point() or not value.numel():
        return False
    is_open = value.abs() == beyond(value.dtype)
    return bool((is_open | (value <= HIDDEN)).all()) and bool(is_open.any())


def is_low_number(value: object) -> bool:
    """Return whether a tensor is one low number in the rank of scores, as they are filled with."""
    if not isinstance(value, Tensor) or not value.dim():
        return False
    return value.numel() == 1 and bool((value <= MASKED).all())


def is_hiding(node: object) -> bool:
    """Return whether a node gives the most that a log-probability may be: a low number where it is masked."""
    if is_stored(node):
        return is_bound(stored_value(node))
    if not isinstance(node, Node) or node.target != torch.ops.aten.mul.Tensor:
        return False
    return stored_number(node.args[1]) == HIDDEN


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
