"""Find the smallest part of a delegate that still shows a failure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from torch.fx import Node

from safe_arm._compat.extraction import tag_of
from safe_arm.core.island import call_functions
from safe_arm.core.units import Unit, computes, units_of
from safe_arm.partitioner.demotion import Demotion
from safe_arm.partitioner.proposal import Proposal
from safe_arm.partitioner.trials import Trials

Fails = Callable[[Iterable[Node]], bool]


def part_to_repeat(
    demotion: Demotion,
    proposal: Proposal,
    trials: Trials,
    *,
    float_borders: bool,
) -> list[Node]:
    """Return the nodes, in graph order, whose lowering repeats the failure behind a demotion.

    Args:
        demotion: the demoted nodes.
        proposal: the proposal that was tried; the demoted nodes still bear the tag of their delegate there.
        trials: lowers parts.
        float_borders: true if the profile lets float values cross the border of a delegate.
    """
    program = proposal.program
    tag = tag_of(demotion.nodes[0])
    delegate = [
        node for node in call_functions(program.graph_module) if tag_of(node) == tag
    ]

    def fails(part: Iterable[Node]) -> bool:
        failure = trials.failure_of_part(program, proposal.specs[str(tag)], part)
        return failure is not None and failure.kind == demotion.failure.kind

    part = failing_part(
        frozenset(demotion.nodes),
        units_of(delegate, float_borders=float_borders),
        fails,
    )
    return [node for node in delegate if node in part]


def failing_part(
    culprit: Unit,
    units: Sequence[Unit],
    fails: Fails,
) -> Unit:
    """Return the culprit if it fails alone, else the shortest run of units found that holds it and fails.

    Runs of units in topological order are convex. A failure that needs other units is assumed to need all units between
    them and the culprit too. About log2 of their number are tried.

    Args:
        culprit: the unit that is blamed.
        units: all units of its delegate, in topological order.
        fails: returns whether a part fails in the same way when lowered alone.

    Returns:
        The part; the culprit if not even the whole delegate fails.
    """
    places = [index for index, unit in enumerate(units) if unit & culprit]
    if not places or (computes(culprit) and fails(culprit)):
        return culprit
    end = places[-1] + 1
    if not fails(_run(units, 0, end)):
        if end == len(units) or not fails(_run(units, 0, len(units))):
            return culprit
        end = len(units)

    def fails_from(start: int) -> bool:
        return fails(_run(units, start, end))

    return _run(
        units,
        places[0] - bisect_left(range(places[0], 0, -1), True, key=fails_from),
        end,
    )


def _run(
    units: Sequence[Unit],
    start: int,
    end: int,
) -> Unit:
    return frozenset().union(*units[start:end])
