"""The accepted differences: an operator's delegate may be 0 codes off, except for the rows of one table.

A value in the middle between two codes may go to either (distance.py). That is no tolerance: both are right, because
TOSA rounds ties up and PyTorch to even. The rounding of real floats (rounding.py) is no tolerance either.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.int16_tables import TABLES
from safe_arm.core.island import op_name
from safe_arm.core.operators import named

#: Operators whose int16 output may go to either of two codes further from the middle between them (wide_sums.py): of a
#: sum of int16 products 31 bits are kept, and what is cut off is rounded before the code is.
WIDE_SUMS = named("convolution linear bmm")


def is_wide_sum(nodes: Iterable[Node], value: Tensor) -> bool:
    """Tell whether a unit's sum is longer than what TOSA rescales."""
    return _is_any_of(WIDE_SUMS, nodes, value)


def is_table(nodes: Iterable[Node], value: Tensor) -> bool:
    """Tell whether a unit's function is read from a table that interpolates."""
    return _is_any_of(TABLES, nodes, value)


def _is_any_of(names: frozenset[str], nodes: Iterable[Node], value: Tensor) -> bool:
    return value.dtype == torch.int16 and not names.isdisjoint(map(op_name, nodes))
