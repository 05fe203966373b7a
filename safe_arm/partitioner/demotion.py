"""Find the smallest set of operators that must leave a delegate so that the rest of it lowers."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from torch.fx import Node

from safe_arm._compat.extraction import mutated_buffers, tag_of
from safe_arm.core.errors import DemotionWarning
from safe_arm.core.failure import Failure
from safe_arm.core.island import call_functions, op_name
from safe_arm.core.names import shown
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
        failure: what the lowering died of.
    """

    failure: Failure = field(default_factory=lambda: Failure("", ""))


@dataclass(frozen=True)
class Settled:
    """A proposal of which every delegate lowers, and is right as far as it was to be proven.

    Attributes:
        proposal: the tagged program.
        attempt: what its delegates were lowered to.
        demotions: what had to leave, in the order found.
    """

    proposal: Proposal
    attempt: Attempt = field(default_factory=Attempt)
    demotions: tuple[Demotion, ...] = ()


class Preflight:
    """Tries what the partitioner proposes until everything proposed lowers.

    Args:
        trials: lowers and counts.
        propose: partitions anew, without what was demoted so far.
        demoted: told of every demotion before the next proposal; it may raise to stop here.
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
        self._trials, self._propose, self._demoted, self._float_borders = (
            trials,
            propose,
            demoted,
            float_borders,
        )
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
            proposal = settled.proposal
            for tag, failure in settled.attempt.failures.items():
                nodes = [
                    node
                    for node in call_functions(proposal.program.graph_module)
                    if tag_of(node) == tag
                ]
                delegate = _Delegate(
                    self._trials, proposal, tag, nodes, failure.stage == "verify"
                )
                for culprits, why in self._measured(delegate, failure) or [
                    self._culprits(delegate, failure)
                ]:
                    demotion = Demotion(
                        "",
                        why,
                        tuple(n for n in nodes if n in culprits),
                        failure.stage,
                        failure,
                    )
                    self._demotions.append(demotion)
                    self._demoted(demotion, proposal)

    def _tried(self) -> Settled:
        proposal = self._propose(self._demotions)
        attempt = self._trials.attempt(proposal.program, proposal.specs, proving=True)
        return Settled(proposal, attempt, tuple(self._demotions))

    def _measured(
        self, delegate: _Delegate, failure: Failure
    ) -> list[tuple[frozenset[Node], str]]:
        """Return the whole units that were measured to be wrong, each with its reason."""
        units = self._units(delegate)
        wrong = [
            (
                frozenset().union(
                    *(
                        unit
                        for unit in units
                        if any(_bears(node, names) for node in unit)
                    )
                ),
                why,
            )
            for names, why in failure.culprits
        ]
        return [(unit, why) for unit, why in wrong if unit]

    def _readmitting(self, settled: Settled) -> Settled:
        """Put back what was blamed for a failure that went on without it, if everything lowers with it."""
        wheres = [demotion.failure.where for demotion in self._demotions]
        guessed = [
            (index, d)
            for index, d in enumerate(self._demotions)
            if not d.failure.culprits
        ]
        doubtful = [d for index, d in guessed if d.failure.where in wheres[index + 1 :]]
        for demotion in doubtful[:READMITTED]:
            place = self._demotions.index(demotion)
            self._demotions.remove(demotion)
            without = self._tried()
            if without.attempt.failures:
                self._demotions.insert(place, demotion)
                without = self._tried()
            settled = without
        return settled

    def _units(self, delegate: _Delegate) -> tuple[Unit, ...]:
        together = mutated_buffers(delegate.proposal.program)
        return units_of(
            delegate.nodes, float_borders=self._float_borders, together=together
        )

    def _culprits(
        self, delegate: _Delegate, failure: Failure
    ) -> tuple[frozenset[Node], str]:
        """Choose what leaves a delegate, and say why."""
        everything = frozenset(delegate.nodes)
        units = self._units(delegate)
        self._seen[failure.kind] += 1
        blamed = _blamed(units, failure)
        reason = (
            failure.message
            if failure.stage == "verify"
            else f"{failure.where} fails on it: {failure.message}"
        )
        if self._rounds > ROUNDS:
            return (
                everything,
                f"given up after {self._trials.count} trials; {failure.where}: {failure.message}",
            )
        if self._seen[failure.kind] >= REPEATED:
            found = self._all_of_a_kind(
                delegate, units, blamed or self._bisected(delegate, units), failure
            )
            every = found == everything
            return (
                found,
                f"{failure.where} fails on every operator tried: {failure.message}"
                if every
                else reason,
            )
        return blamed or self._bisected(delegate, units), reason

    def _bisected(self, delegate: _Delegate, units: Sequence[Unit]) -> Unit:
        """Find the first unit whose arrival makes the units before it fail; log2 of their number trials."""
        good, bad = 0, len(units)
        while bad - good > 1:
            middle = (good + bad) // 2
            prefix = frozenset().union(*units[:middle])
            if computes(prefix) and delegate.failure(prefix) is not None:
                bad = middle
            else:
                good = middle
        return units[good]

    def _all_of_a_kind(
        self,
        delegate: _Delegate,
        units: Sequence[Unit],
        culprit: Unit,
        failure: Failure,
    ) -> frozenset[Node]:
        """Demote the operators like the culprit that fail alone; everything, if an unlike one fails alone as well."""
        ops = {op_name(node) for node in culprit}
        kernel = ops - _BORDER
        alike = [u for u in units if u != culprit and kernel & {op_name(n) for n in u}][
            :ALONE
        ]
        unlike = next(
            (
                u
                for u in reversed(units)
                if u != culprit and computes(u) and u not in alike
            ),
            None,
        )
        if unlike is not None:
            alone = delegate.failure(unlike)
            if alone is not None and alone.kind == failure.kind:
                return frozenset(delegate.nodes)
        return culprit.union(
            *(unit for unit in alike if delegate.failure(unit) is not None)
        )


def described(demotion: Demotion) -> str:
    """Say in one paragraph what was demoted, why, and where it stands in the user's code."""
    kernel = [node for node in demotion.nodes if op_name(node) not in _BORDER] or list(
        demotion.nodes
    )
    where = next((line for node in kernel if (line := source_line(node))), "")
    ops = ", ".join(dict.fromkeys(_shown(node) for node in kernel[:4]))
    more = f" and {len(kernel) - 4} more" if len(kernel) > 4 else ""
    command = (
        f"; repeat it with: {demotion.failure.command}"
        if demotion.failure.command
        else ""
    )
    return f"{ops}{more}{f' ({where})' if where else ''}: {demotion.reason}{command}"


def _shown(node: Node) -> str:
    return (
        shown(op_name(node), written(node), module_path(node))
        if op_name(node)
        else node.name
    )


def warn_of(demotions: Sequence[Demotion], report: Report) -> None:
    """Warn once about all demotions; louder if nothing is left to delegate."""
    if not demotions:
        return
    rest = (
        f" (and {len(demotions) - 3} more, see partitioner.report)"
        if len(demotions) > 3
        else ""
    )
    what = "; ".join(map(described, demotions[:3]))
    total = sum(verdict.macs for verdict in report.verdicts)
    cost = (
        f"; that is {100 * sum(v.macs for v in report.demoted) / total:.1f} % of the MACs"
        if total
        else ""
    )
    loud = (
        ""
        if report.delegates
        else "NOTHING IS DELEGATED, the whole program runs on the CPU. First cause: "
    )
    warnings.warn(
        f"{loud}demoted from the accelerator to the CPU: {what}{rest}{cost}",
        DemotionWarning,
        stacklevel=2,
    )


_BORDER = frozenset(
    f"quantized_decomposed::{way}_per_{what}"
    for way in ("quantize", "dequantize")
    for what in ("tensor", "channel")
)


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


def _bears(node: Node, names: frozenset[str]) -> bool:
    """Whether one of the planted names, which may be paths into nested graphs, is a node's."""
    return node.name in names or any(
        name.rsplit(".", 1)[-1] == node.name for name in names if "." in name
    )


def _blamed(units: Sequence[Unit], failure: Failure) -> Unit | None:
    """Return the unit of the likeliest suspect that is in the delegate, None if there is none."""
    pairs = (
        (suspect.rsplit(".", 1)[-1], unit)
        for suspect in failure.suspects
        for unit in units
    )
    return next(
        (
            unit
            for name, unit in pairs
            if any(n.name == name for n in unit) and computes(unit)
        ),
        None,
    )
