"""Compute what 16-bit TOSA TABLEs can return for a function: codes of it, and straight lines between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.int16_tables import (
    FARTHEST,
    STEP,
    Table,
    between,
    sum_of,
    tables_of,
    whole_table,
)
from safe_arm.core.island import QUANTIZE, QParams, is_dequantize, op_name
from safe_arm.verification.distance import near_middle
from safe_arm.verification.evaluation import Evaluation

#: Codes that values may be off that are summed up, and those that are doubled: RESCALE saturates at -32,768, and a
#: quantiser one code above; and an entry of each table may lie in the middle between two codes.
_SUMMED, _DOUBLED = 1.0, 2.0


class Lines(NamedTuple):
    """Values read from tables, in codes.

    Attributes:
        codes: the values, unrounded if they are read from one table.
        off: the error bound of each, because an entry lies in the middle between two codes.
    """

    codes: Tensor
    off: Tensor


def at_all_codes(source: Node, nodes: Iterable[Node]) -> Evaluation | None:
    """Evaluate a function at every code of 16 bits; return None if it cannot be evaluated.

    Args:
        source: the int16 codes it is a function of; 2**15 stands for what comes after the last.
        nodes: the function, DQ to Q.
    """
    function = Evaluation({source: torch.arange(-(2**15), 2**15 + 1)})
    return None if isinstance(attempted(function.run, nodes), Caught) else function


def interpolated(
    nodes: Sequence[Node], eager: Evaluation, farthest: int = FARTHEST
) -> dict[Node, Lines]:
    """Return the input of a unit's quantiser, in codes, if its function is read from 16-bit tables.

    Args:
        nodes: one unit, DQ to Q, whose only operator is a function of one int16 value.
        eager: has the codes the unit gets.
        farthest: codes that a value read from tables may be from the function at any of them.

    Returns:
        For the quantiser the interpolated values (TOSA 1.0, TABLE); nothing if the unit is of another shape, or if its
        function is too steep for tables.
    """
    before, kernel, after = [], 0, []
    for node in nodes:
        if is_dequantize(node):
            before.append(node)
        elif op_name(node) == QUANTIZE:
            after.append(node)
        else:
            kernel += 1
    if not (kernel == len(before) == len(after) == 1):
        return {}
    (source,), (quantize,) = before[0].all_input_nodes, after
    codes = eager.values[source]
    q = QParams.of(quantize)
    if codes.dtype != torch.int16 or q is None or q.dtype != torch.int16:
        return {}
    evaluated = at_all_codes(source, nodes)
    if evaluated is None:
        return {}
    function = evaluated.unrounded[quantize]
    tables = tables_of(function) or (whole_table(function),)
    place = codes.long() + 2**15
    if len(tables) == 1 and not tables[0].is_doubled:
        lines = _lines_of(tables[0], function, codes)
    else:
        total = sum_of(tables)[place]
        is_doubled = any(table.is_doubled for table in tables)
        off = _DOUBLED if is_doubled else _SUMMED
        lines = Lines(total, torch.full_like(total, off))
    # Where it has no value, as a logarithm has none below 0, any code is right.
    has_value = ~function.isnan()[place]
    distance = lines.codes.clamp(q.qmin, q.qmax) - evaluated.values[quantize][place]
    if distance[has_value].abs().gt(farthest).any():
        return {}
    return {quantize: lines}


def _lines_of(table: Table, function: Tensor, codes: Tensor) -> Lines:
    """Return what one table gives for some codes, whichever way entries in the middle between two codes went."""
    entries = table.entries.double()
    unrounded = function[::STEP]
    at_tie = near_middle(unrounded) & ((unrounded - entries).abs() < 1)
    entries = torch.where(at_tie, unrounded, entries)
    return Lines(between(entries, codes), between(at_tie.double() / 2, codes))
