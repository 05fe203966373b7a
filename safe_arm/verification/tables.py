"""What a 16-bit TOSA TABLE can give: 513 codes of the function, and straight lines between them."""

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

#: The distance of two entries in codes, and how many eager are.
STEP, _ENTRIES = 128, 513
#: How far straight lines may be from the function on what a delegate is proven with: a 256th of the range.
FARTHEST = 256


class Lines(NamedTuple):
    """What is read from a table, in codes.

    Attributes:
        codes: the interpolated values, unrounded.
        off: what each may be off, because an entry lies in the middle between two codes.
    """

    codes: Tensor
    off: Tensor


def at_entries(source: Node, nodes: Iterable[Node]) -> Evaluation | None:
    """Evaluate a function where a 16-bit table holds it; nothing if it cannot be.

    Args:
        source: the int16 codes it is a function of; 2**15 stands for what comes after the last.
        nodes: the function, DQ to Q.
    """
    entries = Evaluation({source: torch.arange(_ENTRIES) * STEP - 2**15})
    return None if isinstance(attempted(entries.run, nodes), Caught) else entries


def interpolated(
    nodes: Sequence[Node], eager: Evaluation, farthest: int = FARTHEST
) -> dict[Node, Lines]:
    """Return what a unit's quantiser sees, unrounded and in codes, if its function is read from a 16-bit table.

    Args:
        nodes: one unit, DQ to Q, whose only operator is a function of one int16 value.
        eager: has the codes the unit gets.
        farthest: codes that a line between two entries may be from the function at any of them.

    Returns:
        For the quantiser the interpolated values (TOSA 1.0, TABLE); nothing if the unit is of another shape, or if its
        function is too steep for a table.
    """
    kernel = [
        node for node in nodes if op_name(node) != QUANTIZE and not is_dequantize(node)
    ]
    before = [node for node in nodes if is_dequantize(node)]
    after = [node for node in nodes if op_name(node) == QUANTIZE]
    if not (len(kernel) == len(before) == len(after) == 1):
        return {}
    (source,), (quantize,) = before[0].all_input_nodes, after
    given, q = eager.values[source], QParams.of(quantize)
    if given.dtype != torch.int16 or q is None or q.dtype != torch.int16:
        return {}
    entries, function = at_entries(source, nodes), Evaluation({source: given})
    try:
        function.run(nodes)
    except EvaluationError:
        return {}
    if entries is None:
        return {}
    table, half = entries.values[quantize].double(), entries.unrounded[quantize]
    between = (near_middle(half) & ((half - table).abs() < 1)).double()
    table = torch.where(between > 0, half, table)
    place = given.long() + 2**15
    low, part = place // STEP, (place % STEP).double() / STEP
    lines, off = (
        each[low] * (1 - part) + each[low + 1] * part for each in (table, between / 2)
    )
    return (
        {quantize: Lines(lines, off)}
        if not (lines - function.values[quantize]).abs().gt(farthest).any()
        else {}
    )
