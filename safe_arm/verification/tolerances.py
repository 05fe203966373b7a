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
    """One row: how far an operator may be off.

    Attributes:
        op: its schema name.
        codes: the bound, in codes of its output.
        reason: why it needs one.
        dtypes: the output's dtypes it holds for.
        interpolated: the bound is on what a 16-bit table gives for the function, not on the function (tables.py).
        cut_off: nearer than usual to the middle between two codes a value may go to either (wide_sums.py).
    """

    op: str
    codes: int
    reason: str
    dtypes: tuple[torch.dtype, ...]
    interpolated: bool = False
    cut_off: bool = False


_INT16 = (torch.int16,)
_WIDE_SUMS = "of a sum of int16 products 31 bits are kept, and what is cut off is rounded before the code is"

_TABLE = "TOSA keeps 513 codes of a 16-bit function and interpolates between them"
_FUNCTIONS = (
    "acosh asinh atan cos cosh elu erf exp expm1 gelu hardsigmoid hardswish leaky_relu log log10 log1p pow reciprocal "
    "rsqrt sigmoid silu sin sinh tanh"
)

TOLERANCES: tuple[Tolerance, ...] = (
    *(
        Tolerance(f"aten::{op}", 0, _WIDE_SUMS, _INT16, cut_off=True)
        for op in ("convolution", "linear", "bmm")
    ),
    *(
        Tolerance(f"aten::{op}", 0, _TABLE, _INT16, interpolated=True)
        for op in _FUNCTIONS.split()
    ),
)


def tolerance(
    nodes: Iterable[Node], value: Tensor, *, codes: bool, accepted: int = 0
) -> float:
    """Return how far the value that some operators compute together may be off.

    Args:
        nodes: the operators of one unit.
        value: their result.
        codes: whether the value is in codes; a real float has its bound already (rounding.py).
        accepted: codes that any operator may be off.
    """
    if not codes:
        return 0
    return max([accepted, *(row.codes for row in _rows(nodes, value))])


def is_wide_sum(nodes: Iterable[Node], value: Tensor) -> bool:
    """Tell whether a unit's sum is longer than what TOSA rescales."""
    return any(row.cut_off for row in _rows(nodes, value))


def is_table(nodes: Iterable[Node], value: Tensor) -> bool:
    """Tell whether a unit's function is read from a table that interpolates."""
    return any(row.interpolated for row in _rows(nodes, value))


def _rows(nodes: Iterable[Node], value: Tensor) -> list[Tolerance]:
    names = {op_name(node) for node in nodes}
    return [row for row in TOLERANCES if row.op in names and value.dtype in row.dtypes]
