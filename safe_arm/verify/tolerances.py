"""How far an operator's delegate may be from the quantised graph: 0 codes, but for the rows of one table.

A value in the middle between two codes may go to either (distance.py): that is no tolerance but what "right" means,
because TOSA rounds ties up and PyTorch to even.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.island import op_name


@dataclass(frozen=True)
class Tolerance:
    """One row: what an operator may be apart.

    Attributes:
        op: its schema name.
        codes: the bound, in codes of its output.
        reason: why it needs one.
        dtypes: the output's dtypes it holds for; empty for all.
    """

    op: str
    codes: int
    reason: str
    dtypes: tuple[torch.dtype, ...] = ()


TOLERANCES: tuple[Tolerance, ...] = ()

#: The bound on arithmetic with real floats, relative to the size of what is summed (distance.py): both compute in
#: float32 or better, in another order.
FLOAT = 1e-5


def tolerance(nodes: Iterable[Node], value: Tensor, *, codes: bool) -> float:
    """Return how far the value that some operators compute together may be off.

    Args:
        nodes: the operators of one unit.
        value: what they compute.
        codes: whether the value is in codes; else it is a real float.
    """
    if not codes:
        return FLOAT
    names = {op_name(node) for node in nodes}
    rows = (row for row in TOLERANCES if row.op in names and (not row.dtypes or value.dtype in row.dtypes))
    return max((row.codes for row in rows), default=0)
