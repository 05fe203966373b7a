"""Compute what a 16-bit TOSA TABLE can return: 513 codes of the function, and straight lines between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import QUANTIZE, QParams, is_dequantize, op_name
from safe_arm.verification.distance import near_middle
from safe_arm.verification.evaluation import Evaluation, EvaluationError

#: The distance of two entries in codes, and the number of entries.
STEP = 128
_ENTRIES = 513
#: Codes that straight lines may be from the function on the inputs of a proof: a 256th of the range.
FARTHEST = 256


class Lines(NamedTuple):
    """Values read from a table, in codes.

    Attributes:
        codes: the interpolated values, unrounded.
        off: the error bound of each, because an entry lies in the middle between two codes.
    """

    codes: Tensor
    off: Tensor


def at_entries(source: Node, nodes: Iterable[Node]) -> Evaluation | None:
    """Evaluate a function at the entries of a 16-bit table; return None if it cannot be evaluated.

    Args:
        source: the int16 codes it is a function of; 2**15 stands for what comes after the last.
        nodes: the function, DQ to Q.
    """
    entries = Evaluation({source: torch.arange(_ENTRIES) * STEP - 2**15})
    return None if isinstance(attempted(entries.run, nodes), Caught) else entries


def interpolated(
    nodes: Sequence[Node], eager: Evaluation, farthest: int = FARTHEST
) -> dict[Node, Lines]:
    """Return the input of a unit's quantiser, unrounded and in codes, if its function is read from a 16-bit table.

    Args:
        nodes: one unit, DQ to Q, whose only operator is a function of one int16 value.
        eager: has the codes the unit gets.
        farthest: codes that a line between two entries may be from the function at any of them.

    Returns:
        For the quantiser the interpolated values (TOSA 1.0, TABLE); nothing if the unit is of another shape, or if its
        function is too steep for a table.
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
    entries = at_entries(source, nodes)
    function = Evaluation({source: codes})
    try:
        function.run(nodes)
    except EvaluationError:
        return {}
    if entries is None:
        return {}
    table = entries.values[quantize].double()
    unrounded = entries.unrounded[quantize]
    at_tie = near_middle(unrounded) & ((unrounded - table).abs() < 1)
    table = torch.where(at_tie, unrounded, table)
    place = codes.long() + 2**15
    low = place // STEP
    part = (place % STEP).double() / STEP
    lines = _between(table, low, part)
    if (lines - function.values[quantize]).abs().gt(farthest).any():
        return {}
    return {quantize: Lines(lines, _between(at_tie.double() / 2, low, part))}


def _between(entries: Tensor, low: Tensor, part: Tensor) -> Tensor:
    """Interpolate between each entry and the next."""
    return entries[low] * (1 - part) + entries[low + 1] * part
