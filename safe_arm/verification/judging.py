"""Judge one unit by the tensors that the delegate has for its values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.island import call_functions, is_dequantize, is_quantize, op_name
from safe_arm.core.operators import VIEWS
from safe_arm.core.origins import origin
from safe_arm.core.units import Unit, computes
from safe_arm.verification.delegate import Delegate
from safe_arm.verification.distance import Distance, codes_apart, distance
from safe_arm.verification.placing import PlacedUnit, PlacedValue
from safe_arm.verification.tolerances import is_table, is_wide_sum


@dataclass(frozen=True)
class Culprit:
    """Operators that compute something other than the graph they were made from.

    Attributes:
        names: their nodes in the user's graph.
        distance: how far off they are, on the values the delegate itself gave them.
        reference: the name of that graph in a message.
    """

    names: frozenset[str]
    distance: Distance
    reference: str = "the quantised graph"


@dataclass(frozen=True)
class Verdict:
    """The judgement of one unit.

    Attributes:
        fits: at least one of its values was found, and none of those found is wrong.
        convicts: the unit shows that the suspect values before it are wrong.
        wrong: the largest difference beyond the bound of its operators; None if there is none.
        certain: no later operator can undo that difference.
        taken: by node, the delegate's tensors that later operators are checked on; other values are assumed right.
        worst: the largest difference within the bound.
        tie: name of the operator if it took another code than the quantised graph at a tie; else empty.
        tolerated: its name if it took another code within its row of the tolerance table; else empty.
    """

    fits: bool
    convicts: bool
    wrong: Distance | None
    certain: bool
    taken: Mapping[Node, Tensor]
    worst: float
    tie: str
    tolerated: str


def judge(placed: PlacedUnit, outputs: Collection[Node], accepted: int) -> Verdict:
    """Judge a unit.

    Args:
        placed: the unit beside the delegate's tensors.
        outputs: the nodes whose values leave the delegate.
        accepted: codes that any operator may be off.
    """
    only_moves = all(map(_moves, placed.nodes))
    right = {}
    beyond = {}
    for node, value in placed.values.items():
        if value is None:
            continue
        if value.distance.worst > _allowed(value.distance, accepted):
            beyond[node] = value
        else:
            right[node] = value
    wrong = beyond
    wrong_outputs = {node: beyond[node] for node in beyond if node in outputs}
    if only_moves:
        # Passes swap moving and clamping: a value that is clamped later shows after that.
        wrong = wrong_outputs
    fits = bool(right) and not beyond
    convicts = bool(wrong_outputs)
    if fits:
        # An operator that only moves data cannot confirm a suspect value, because it accepts any input.
        convicts = not only_moves or not set(outputs).isdisjoint(placed.nodes)
    largest: Distance | None = None
    for value in wrong.values():
        if largest is None or value.distance.worst > largest.worst:
            largest = value.distance
    certain = bool(wrong_outputs)
    if largest is not None and largest.codes and not certain:
        certain = not _may_come_right(placed, beyond, accepted)
    tie, tolerated = _other_codes(placed, right)
    return Verdict(
        fits=fits,
        convicts=convicts,
        wrong=largest,
        certain=certain,
        taken={node: value.tensor for node, value in (right | wrong).items()},
        worst=max((value.distance.worst for value in right.values()), default=0.0),
        tie=tie,
        tolerated=tolerated,
    )


def blame(delegate: Delegate, operators: Unit, wrong: Distance) -> Culprit:
    """Return the culprit for a difference.

    Args:
        delegate: the delegate.
        operators: those between the wrong value and the values it was checked on.
        wrong: the difference.
    """
    computing = [node for node in operators if computes((node,))]
    names = frozenset(map(origin, computing or operators))
    for node in call_functions(delegate.program.graph_module):
        if is_quantize(node) or is_dequantize(node):
            return Culprit(names, wrong)
    return Culprit(names, wrong, "the float program")


def _moves(node: Node) -> bool:
    return op_name(node) in VIEWS or not computes((node,))


def _allowed(apart: Distance, accepted: int) -> int:
    """Return how far a value may be off; the distance of a real float is beyond its bound already (rounding.py)."""
    return accepted if apart.codes else 0


def _may_come_right(
    placed: PlacedUnit, beyond: Mapping[Node, PlacedValue], accepted: int
) -> bool:
    """Return whether only the clamp or the order of a unit's values is wrong; passes swap these with operators."""
    for node, value in beyond.items():
        actual = value.tensor
        expected = placed.eager.values[node]
        if expected.dtype == torch.bool:
            return False
        allowed = _allowed(value.distance, accepted)
        clamped = actual.clamp(expected.min(), expected.max())
        if distance(node, clamped, placed.eager).worst <= allowed:
            continue
        in_order = [
            each.flatten().sort().values.double() for each in (actual, expected)
        ]
        apart = in_order[0] - in_order[1]
        if apart.abs().max() > allowed:
            return False
    return True


def _other_codes(
    placed: PlacedUnit, right: Mapping[Node, PlacedValue]
) -> tuple[str, str]:
    """Return the operator that took another code at a tie, and that which took one within its tolerance."""
    tie = ""
    tolerated = ""
    for node, value in right.items():
        codes = codes_apart(node, value.tensor, placed.eager)
        if codes is None or not bool(codes.any()):
            continue
        nodes = placed.nodes
        expected = placed.eager.values[node]
        has_row = is_table(nodes, expected) or is_wide_sum(nodes, expected)
        if has_row or value.distance.worst > 0:
            tolerated = _rounding_operator(nodes)
        else:
            tie = _rounding_operator(nodes)
    return tie, tolerated


def _rounding_operator(nodes: Sequence[Node]) -> str:
    """Return the name of the operator whose result a unit rounds; an activation after it rounds nothing."""
    for node in nodes:
        if not _moves(node):
            return op_name(node).partition("::")[2]
    return op_name(nodes[-1]).partition("::")[2]
