"""Find the smallest set of operators that must leave a delegate so that the rest of it lowers."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from safe_arm._compat.extraction import tag_of
from safe_arm.core.errors import DemotionWarning
from safe_arm.core.failure import Failure
from safe_arm.core.island import call_functions, op_name
from safe_arm.core.record import Report
from safe_arm.core.source_line import source_line
from safe_arm.core.units import Unit, computes, units_of
from safe_arm.partitioner.checks import Refusal
from safe_arm.partitioner.lowering import Trials

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


@dataclass
class Preflight:
    """Tries what the partitioner proposes until everything proposed lowers.

    Attributes:
        trials: lowers and counts.
        float_borders: whether floats may cross the border of a delegate.
        demotions: what had to leave, in the order found.
    """

    trials: Trials
    float_borders: bool
    demotions: list[Demotion] = field(default_factory=list)
    _seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    _rounds: int = 0

    def run(self, propose: Callable[[], Any], demoted: Callable[[Demotion], None]) -> Any:
        """Propose, try, demote, and propose again; every round takes at least one operator out, so it ends.

        Args:
            propose: partitions anew, without what was demoted so far; gives a ``PartitionResult``.
            demoted: told of every demotion before the next proposal; it may raise to stop here.

        Returns:
            The first result in which every delegate lowers.
        """
        while True:
            result = propose()
            program, specs = result.tagged_exported_program, result.partition_tags
            failures = self.trials.failures(program, specs, proving=True)
            if not failures:
                return self._readmitting(result, propose)
            self._rounds += 1
            for tag, failure in failures.items():
                nodes = [node for node in call_functions(program.graph_module) if tag_of(node) == tag]
                delegate = _Delegate(self.trials, program, specs[tag], nodes, failure.stage == "verify")
                for culprits, why in self._measured(nodes, failure) or [self._culprits(delegate, failure)]:
                    demotion = Demotion("", why, tuple(n for n in nodes if n in culprits), failure.stage, failure)
                    self.demotions.append(demotion)
                    demoted(demotion)

    def _measured(self, nodes: list[Node], failure: Failure) -> list[tuple[frozenset[Node], str]]:
        """Return the whole units that were measured to be wrong, each with its reason."""
        found = []
        units = units_of(nodes, float_borders=self.float_borders)
        for names, why in failure.culprits:
            wrong = [unit for unit in units if any(_bears(node, names) for node in unit)]
            if wrong:
                found.append((frozenset().union(*wrong), why))
        return found

    def _readmitting(self, result: Any, propose: Callable[[], Any]) -> Any:
        """Put back what was blamed for a failure that went on without it, if everything lowers with it."""
        wheres = [demotion.failure.where for demotion in self.demotions]
        guessed = [(index, d) for index, d in enumerate(self.demotions) if not d.failure.culprits]
        doubtful = [d for index, d in guessed if d.failure.where in wheres[index + 1 :]]
        for demotion in doubtful[:READMITTED]:
            kept = list(self.demotions)
            self.demotions.remove(demotion)
            result = propose()
            if self.trials.failures(result.tagged_exported_program, result.partition_tags, proving=True):
                self.demotions[:] = kept
                result = propose()
                self.trials.failures(result.tagged_exported_program, result.partition_tags, proving=True)
        return result

    def _culprits(self, delegate: _Delegate, failure: Failure) -> tuple[frozenset[Node], str]:
        """Choose what leaves a delegate, and say why."""
        everything = frozenset(delegate.nodes)
        if failure.environment:
            return everything, f"nothing could be compiled: {failure.said}"
        units = units_of(delegate.nodes, float_borders=self.float_borders)
        self._seen[failure.kind] += 1
        blamed = _blamed(units, failure)
        reason = failure.said if failure.stage == "verify" else f"{failure.where} fails on it: {failure.said}"
        if self._rounds > ROUNDS:
            return everything, f"given up after {self.trials.count} trials; {failure.where}: {failure.said}"
        if self._seen[failure.kind] >= REPEATED:
            found = self._all_of_a_kind(delegate, units, blamed or self._bisected(delegate, units), failure)
            every = found == everything
            return found, f"{failure.where} fails on every operator tried: {failure.said}" if every else reason
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
        self, delegate: _Delegate, units: Sequence[Unit], culprit: Unit, failure: Failure
    ) -> frozenset[Node]:
        """Demote the operators like the culprit that fail alone; everything, if an unlike one fails alone as well."""
        ops = {op_name(node) for node in culprit}
        kernel = ops - _BORDER
        alike = [u for u in units if u != culprit and kernel & {op_name(n) for n in u}][:ALONE]
        unlike = next((u for u in reversed(units) if u != culprit and computes(u) and u not in alike), None)
        if unlike is not None:
            alone = delegate.failure(unlike)
            if alone is not None and alone.kind == failure.kind:
                return frozenset(delegate.nodes)
        return culprit.union(*(unit for unit in alike if delegate.failure(unit) is not None))


def described(demotion: Demotion) -> str:
    """Say in one paragraph what was demoted, why, and where it stands in the user's code."""
    kernel = [node for node in demotion.nodes if op_name(node) not in _BORDER] or list(demotion.nodes)
    where = next((line for node in kernel if (line := source_line(node))), "")
    ops = ", ".join(dict.fromkeys(op_name(node) or node.name for node in kernel[:4]))
    more = f" and {len(kernel) - 4} more" if len(kernel) > 4 else ""
    command = f"; repeat it with: {demotion.failure.command}" if demotion.failure.command else ""
    return f"{ops}{more}{f' ({where})' if where else ''}: {demotion.reason}{command}"


def warn_of(demotions: Sequence[Demotion], report: Report) -> None:
    """Warn once about all demotions; louder if nothing is left to delegate."""
    if not demotions:
        return
    rest = f" (and {len(demotions) - 3} more, see partitioner.report)" if len(demotions) > 3 else ""
    what = "; ".join(map(described, demotions[:3]))
    loud = "" if report.delegates else "NOTHING IS DELEGATED, the whole program runs on the CPU. First cause: "
    warnings.warn(f"{loud}demoted from the accelerator to the CPU: {what}{rest}", DemotionWarning, stacklevel=2)


_BORDER = frozenset(
    f"quantized_decomposed::{way}_per_{what}" for way in ("quantize", "dequantize") for what in ("tensor", "channel")
)


@dataclass(frozen=True)
class _Delegate:
    """One failing delegate: its program, spec and nodes, and a way to try part of it."""

    trials: Trials
    program: Any
    spec: Any
    nodes: list[Node]
    proving: bool = False

    def failure(self, part: Iterable[Node]) -> Failure | None:
        """Lower a part alone."""
        chosen = frozenset(part)
        tags = lambda node: "trial" if node in chosen else None  # noqa: E731
        return self.trials.failures(self.program, {"trial": self.spec}, tags, proving=self.proving).get("trial")


def _bears(node: Node, names: frozenset[str]) -> bool:
    """Whether one of the planted names, which may be paths into nested graphs, is a node's."""
    return node.name in names or any(name.rsplit(".", 1)[-1] == node.name for name in names if "." in name)


def _blamed(units: Sequence[Unit], failure: Failure) -> Unit | None:
    """Return the unit of the likeliest suspect that is in the delegate, None if there is none."""
    for suspect in failure.suspects:
        for unit in units:
            if any(node.name == suspect.rsplit(".", 1)[-1] for node in unit) and computes(unit):
                return unit
    return None
