"""The accepted differences: an operator's delegate may be 0 codes off, except for the rows of one table.

A value in the middle between two codes may go to either (distance.py). That is no tolerance: both are right, because
TOSA rounds ties up and PyTorch to even. The rounding of real floats (rounding.py) is no tolerance either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.island import op_name


@dataclass(frozen=True)
class Tolerance:
    """One row: an operator whose int16 output has a bound of its own.

    Attributes:
        op: its schema name.
        reason: why it needs one.
        interpolated: the bound is on what a 16-bit table gives for the function, not on the function (tables.py).
        cut_off: nearer than usual to the middle between two codes a value may go to either (wide_sums.py).
    """

    op: str
    reason: str
    interpolated: bool = False
    cut_off: bool = False


_WIDE_SUMS = "of a sum of int16 products 31 bits are kept, and what is cut off is rounded before the code is"

_TABLE = "TOSA keeps 513 codes of a 16-bit function and interpolates between them"
_FUNCTIONS = (
    "acosh asinh atan cos cosh elu erf exp expm1 gelu hardsigmoid hardswish leaky_relu log log10 log1p pow reciprocal "
    "rsqrt sigmoid silu sin sinh tanh"
)

TOLERANCES: tuple[Tolerance, ...] = (
    *(
        Tolerance(f"aten::{op}", _WIDE_SUMS, cut_off=True)
        for op in ("convolution", "linear", "bmm")
    ),
    *(Tolerance(f"aten::{op}", _TABLE, interpolated=True) for op in _FUNCTIONS.split()),
)


def is_wide_sum(nodes: Iterable[Node], value: Tensor) -> bool:
    """Tell whether a unit's sum is longer than what TOSA rescales."""
    return any(row.cut_off for row in _rows(nodes, value))


def is_table(nodes: Iterable[Node], value: Tensor) -> bool:
    """Tell whether a unit's function is read from a table that interpolates."""
    return any(row.interpolated for row in _rows(nodes, value))


def _rows(nodes: Iterable[Node], value: Tensor) -> list[Tolerance]:
    if value.dtype != torch.int16:
        return []
    names = {op_name(node) for node in nodes}
    return [row for row in TOLERANCES if row.op in names]
