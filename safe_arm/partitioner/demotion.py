"""Find the smallest set of operators that must leave a delegate so that the rest of it lowers."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from torch.fx import Node

from safe_arm._compat.extraction import mutated_buffers, tag_of
from safe_arm.core.errors import DemotionWarning
from safe_arm.core.failure import Failure
from safe_arm.core.island import (
    DEQUANTIZE,
    QUANTIZE,
    QUANTIZE_CHANNELS,
    call_functions,
    op_name,
)
from safe_arm.core.names import shown
from safe_arm.core.plain_reasons import plain
from safe_arm.core.record import Report
from safe_arm.core.source_line import source_line
from safe_arm.core.units import Unit, computes, units_of
from safe_arm.core.written import module_path, written
from safe_arm.partitioner.checks import Refusal
from safe_arm.partitioner.proposal import Proposal
from safe_arm.partitioner.trials import Attempt, Trials

#: From this often on, the same failure is looked for in every operator of its kind at once.
REPEATED = 3
#: How many operators of a kind are tried alone, and after how many rounds whole delegates are given up.
ALONE = 32
ROUNDS = 24
#: How many operators that may have been blamed wrongly are given a second chance.
READMITTED = 3


@dataclass(frozen=True)
class Demotion(Refusal):
    """A unit that left its delegate because the trial lowering failed on it.

    Attributes:
        failure: the failure of the lowering.
    """

    failure: Failure = field(default_factory=lambda: Failure("", ""))


@dataclass(frozen=True)
class Settled:
    """A proposal whose delegates all lower, and were found right wherever verification was requested.

    Attributes:
        proposal: the tagged program.
        attempt: the results of lowering its delegates.
        demotions: the units that had to leave, in the order found.
    """

    proposal: Proposal
    attempt: Attempt = field(default_factory=Attempt)
    demotions: tuple[Demotion, ...] = ()


class Preflight:
    """Tries the proposals of the partitioner until one lowers as a whole.

    Args:
        trials: lowers delegates and counts the lowerings.
        propose: partitions anew, without what was demoted so far.
        demoted: is called with every demotion before the next proposal; it may raise to stop there.
        float_borders: whether floats may cross the border of a delegate.
    """

    def __init__(
        self,
        trials: Trials,
        propose: Callable[[Sequence[Demotion]], Proposal],
        demoted: Callable[[Demotion, Proposal], None],
        *,
        float_borders: bool,
    ) -> None:
        self._trials = trials
        self._float_borders = float_borders
        self._propose = propose
        self._demoted = demoted
        self._demotions: list[Demotion] = []
        self._seen: Counter[tuple[str, str]] = Counter()
        self._rounds = 0

    def run(self) -> Settled:
        """Propose, try, demote, and propose again; every round takes at least one operator out, so it ends.

        Returns:
            The first proposal of which every delegate lowers.
        """
        while True:
            settled = self._tried()
            if not settled.attempt.failures:
                return self._readmitting(settled)
            self._rounds += 1
            for tag, failure in settled.attempt.failures.items():
                self._demote_from(settled.proposal, tag, failure)

    def _demote_from(
        self,
        proposal: Proposal,
        tag: str,
        failure: Failure,
    ) -> None:
        operators = call_functions(proposal.program.graph_module)
        nodes = [node for node in operators if tag_of(node) == tag]
        proving = failure.stage == "verify"
        delegate = _Delegate(self._trials, proposal, tag, nodes, proving)
        units = self._units(delegate)
        culprits = _measured(units, failure) or [
            self._culprits(delegate, units, failure)
        ]
        for unit, why in culprits:
            demoted = tuple(node for node in nodes if node in unit)
            demotion = Demotion("", why, demoted, failure.stage, failure)
            self._demotions.append(demotion)
            self._demoted(demotion, proposal)

    def _tried(self) -> Settled:
        proposal = self._propose(self._demotions)
        attempt = self._trials.attempt(proposal.program, proposal.specs, proving=True)
        return Settled(proposal, attempt, tuple(self._demotions))

    def _readmitting(self, settled: Settled) -> Settled:
        """Undo the demotions that did not cure their failure, if everything lowers without them."""
        doubtful = []
        for index, demotion in enumerate(self._demotions):
            where = demotion.failure.where
            later = self._demotions[index + 1 :]
            goes_on = any(other.failure.where == where for other in later)
            if goes_on and not demotion.failure.culprits:
                doubtful.append(demotion)
        for demotion in doubtful[:READMITTED]:
            place = self._demotions.index(demotion)
            self._demotions.remove(demotion)
            settled = self._tried()
            if settled.attempt.failures:
                self._demotions.insert(place, demotion)
                settled = self._tried()
        return settled

    def _units(self, delegate: _Delegate) -> tuple[Unit, ...]:
        together = mutated_buffers(delegate.proposal.program)
        return units_of(
            delegate.nodes, float_borders=self._float_borders, together=together
        )

    def _culprits(
        self, delegate: _Delegate, units: Sequence[Unit], failure: Failure
    ) -> tuple[frozenset[Node], str]:
        """Choose what leaves a delegate, and say why."""
        where = failure.where
        message = failure.message
        everything = frozenset(delegate.nodes)
        self._seen[failure.kind] += 1
        if self._rounds > ROUNDS:
            given_up = f"given up after {self._trials.count} trials"
            return everything, f"{given_up}; {where}: {message}"
        unit = _blamed(units, failure) or _bisected(delegate, units)
        if self._seen[failure.kind] >= REPEATED:
            unit = _all_of_a_kind(delegate, units, unit, failure)
            if unit == everything:
                return unit, f"{where} fails on every operator tried: {message}"
        if failure.stage == "verify":
            return unit, message
        return unit, f"{where} fails on it: {message}"


def _measured(
    units: Sequence[Unit], failure: Failure
) -> list[tuple[frozenset[Node], str]]:
    """Return the whole units that were measured to be wrong, each with its reason."""
    measured = []
    for names, why in failure.culprits:
        wrong = frozenset[Node]().union(*_with_any(names, units))
        if wrong:
            measured.append((wrong, why))
    return measured


def _bisected(delegate: _Delegate, units: Sequence[Unit]) -> Unit:
    """Find the first unit whose addition makes the units before it fail, in log2(number of units) trials."""

    def lowers(count: int) -> bool:
        prefix = frozenset().union(*units[:count])
        return not computes(prefix) or delegate.failure(prefix) is None

    fewer = range(len(units) - 1, 0, -1)
    return units[-1 - bisect_left(fewer, True, key=lowers)]


def _all_of_a_kind(
    delegate: _Delegate, units: Sequence[Unit], culprit: Unit, failure: Failure
) -> frozenset[Node]:
    """Return the units of the culprit's kind that fail alone; the whole delegate, if one of another kind does too."""
    kernel = _operators(culprit) - _BORDER
    others = [unit for unit in units if unit != culprit]
    alike = [unit for unit in others if kernel & _operators(unit)][:ALONE]
    unlike = [unit for unit in others if computes(unit) and unit not in alike]
    if unlike:
        alone = delegate.failure(unlike[-1])
        if alone is not None and alone.kind == failure.kind:
            return frozenset(delegate.nodes)
    failing = [unit for unit in alike if delegate.failure(unit) is not None]
    return culprit.union(*failing)


def _operators(unit: Unit) -> set[str]:
    return {op_name(node) for node in unit}


def described(demotion: Demotion) -> str:
    """Say in one paragraph what was demoted, why, and where it stands in the user's code."""
    kernel = [node for node in demotion.nodes if op_name(node) not in _BORDER]
    kernel = kernel or list(demotion.nodes)
    text = ", ".join(dict.fromkeys(map(_shown, kernel[:4])))
    if len(kernel) > 4:
        text += f" and {len(kernel) - 4} more"
    where = next(filter(None, map(source_line, kernel)), "")
    if where:
        text += f" ({where})"
    text += f": {plain(demotion.reason)}"
    if demotion.failure.command:
        text += f"; repeat it with: {demotion.failure.command}"
    return text


def _shown(node: Node) -> str:
    name = op_name(node)
    if name:
        return shown(name, written(node), module_path(node))
    return node.name


def warn_of(demotions: Sequence[Demotion], report: Report) -> None:
    """Warn once about all demotions; louder if nothing is left to delegate."""
    if not demotions:
        return
    text = "demoted from the accelerator to the CPU: "
    if not report.delegates:
        loud = "NOTHING IS DELEGATED, the whole program runs on the CPU. First cause: "
        text = loud + text
    text += "; ".join(map(described, demotions[:3]))
    if len(demotions) > 3:
        text += f" (and {len(demotions) - 3} more, see partitioner.report)"
    total = sum(verdict.macs for verdict in report.verdicts)
    if total:
        demoted = sum(verdict.macs for verdict in report.demoted)
        text += f"; that is {100 * demoted / total:.1f} % of the MACs"
    warnings.warn(text, DemotionWarning, stacklevel=2)


_BORDER = frozenset((QUANTIZE, QUANTIZE_CHANNELS, *DEQUANTIZE))


@dataclass(frozen=True)
class _Delegate:
    """One failing delegate: where it stands and its nodes, and a way to try part of it."""

    trials: Trials
    proposal: Proposal
    tag: str
    nodes: list[Node]
    proving: bool = False

    def failure(self, part: Iterable[Node]) -> Failure | None:
        """Lower a part alone."""
        spec = self.proposal.specs[self.tag]
        return self.trials.failure_of_part(
            self.proposal.program, spec, part, proving=self.proving
        )


def _with_any(names: Iterable[str], units: Iterable[Unit]) -> list[Unit]:
    """Return the units with a node of one of the names, which may be paths into nested graphs."""
    own = {name.rsplit(".", 1)[-1] for name in names}
    return [unit for unit in units if any(node.name in own for node in unit)]


def _blamed(units: Sequence[Unit], failure: Failure) -> Unit | None:
    """Return the unit of the likeliest suspect that is in the delegate, None if there is none."""
    for suspect in failure.suspects:
        for unit in filter(computes, _with_any([suspect], units)):
            return unit
    return None
