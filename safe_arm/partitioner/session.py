"""One partitioning of one program, from the plan to the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm.core.errors import DemotionError
from safe_arm.core.record import Report, Subject
from safe_arm.partitioner.checks import (
    CHECKS,
    Policy,
    Refusal,
    checks_without_corrections,
)
from safe_arm.partitioner.checks.non_fuseable_island import NonFuseableIsland
from safe_arm.partitioner.collect import placed_operators, report_of
from safe_arm.partitioner.demotion import Demotion, Preflight, Settled, described
from safe_arm.partitioner.listener import Listener
from safe_arm.partitioner.lowering import Cut, Lowered
from safe_arm.partitioner.plan import Plan, plan
from safe_arm.partitioner.proposal import Proposal, Stock, propose
from safe_arm.partitioner.proving import Prover
from safe_arm.partitioner.small_delegates import refuse_small_delegates
from safe_arm.partitioner.trials import Trials


class Observer:
    """Receives each demotion and refusal, and may write a script that reproduces it; this base class writes none."""

    def demoted(
        self, demotion: Demotion, proposal: Proposal, trials: Trials
    ) -> Path | None:
        """Return the script that repeats a demotion; None for none."""
        return None

    def refused(
        self, refusals: Sequence[Refusal], program: ExportedProgram
    ) -> Mapping[Node, Path]:
        """Return, for refused nodes, the script that shows what stock makes of them."""
        return {}


@dataclass(frozen=True)
class Rules:
    """The settings of a partitioner, the same for every program.

    Attributes:
        policy: the treatment of non-fuseable islands.
        corrections: names of the corrections that are on.
        float_borders: whether floats may cross the border of a delegate.
        subject: target, profile and versions, for the report.
        preflight: whether delegates are tried before they are proposed.
        strict: whether the first demotion is an error.
        tool_time_limit: seconds one run of Vela or model-converter may take.
        prover: proves what was lowered; None to lower only.
        observer: is told of demotions and refusals.
        listener: hears of the trials.
        min_macs: the least number of multiply-accumulates of a delegate between operators outside.
    """

    policy: Policy
    corrections: tuple[str, ...]
    float_borders: bool
    subject: Subject
    preflight: bool = True
    strict: bool = False
    tool_time_limit: float = 600.0
    prover: Prover | None = None
    observer: Observer = field(default_factory=Observer)
    listener: Listener = field(default_factory=Listener)
    min_macs: int = 0


@dataclass(frozen=True)
class Outcome:
    """The result of a session.

    Attributes:
        proposal: the tagged program.
        report: every operator's verdict.
        demotions: the units that had to leave a delegate.
        shipped: the delegates and their results; nothing if ExecuTorch would lower them to something else.
    """

    proposal: Proposal
    report: Report
    demotions: tuple[Demotion, ...]
    shipped: tuple[tuple[Cut, Lowered], ...]


class Session:
    """Partitions one program.

    Args:
        program: an edge program; only its nodes' tags change.
        stock: the stock partitioner.
        rules: the settings of the partitioner.
        method: the name of the program's method.
    """

    def __init__(
        self,
        program: ExportedProgram,
        stock: Stock,
        rules: Rules,
        method: str = "forward",
    ) -> None:
        self._program = program
        self._method = method
        self._stock = stock
        self._rules = rules
        self._trials = Trials(
            rules.tool_time_limit, rules.prover, rules.subject.target, rules.listener
        )
        self._policy = rules.policy
        if rules.policy == "best" and rules.prover is None:
            self._policy = "reject"
        checks = CHECKS
        if not rules.corrections:
            checks = checks_without_corrections(self._policy)
        self._plan = plan(program, self._policy, checks)
        self._scripts: dict[Node, Path] = {}

    def run(self) -> Outcome:
        """Partition the program and collect the report.

        Raises:
            DemotionError: the rules are strict and a delegate cannot be lowered.
            UsageError: the target's compiler is missing or does not run.
            MachineError: the disk is full, or the like.
        """
        rules = self._rules
        trials = self._trials
        if rules.preflight:
            borders = rules.float_borders
            preflight = Preflight(
                trials, self._propose, self._demoted, float_borders=borders
            )
            settled = preflight.run()
            while self._policy == "best" and self._refuse_unverified(settled):
                settled = preflight.run()
        else:
            settled = Settled(self._propose(()))
        refusals = self._plan.refusals
        self._scripts.update(rules.observer.refused(refusals, self._program))
        alternative = None
        if self._policy == "reject":
            alternative = plan(self._program, "propagate")
        report = report_of(
            settled, alternative, rules.subject, self._scripts, self._method
        )
        report = replace(
            report, trials=trials.count, synthetic_weights=trials.synthetic
        )
        shipped = tuple(settled.attempt.lowered.values())
        if trials.synthetic:
            shipped = ()
        return Outcome(settled.proposal, report, settled.demotions, shipped)

    def _propose(self, demotions: Sequence[Demotion]) -> Proposal:
        planned = replace(self._plan, refusals=(*self._plan.refusals, *demotions))
        proposal = propose(self._stock, self._program, planned)
        if not self._rules.min_macs:
            return proposal
        small = tuple(refuse_small_delegates(self._program, self._rules.min_macs))
        if not small:
            return proposal
        planned = replace(planned, refusals=(*planned.refusals, *small))
        return propose(self._stock, self._program, planned)

    def _refuse_unverified(self, settled: Settled) -> bool:
        """Refuse the non-fuseable islands of delegates that are not verified; tell whether there are any."""
        proofs = settled.attempt.proofs
        unverified: dict[Node, str] = {}
        for _, tag, node in placed_operators(self._program.graph_module):
            if tag and tag not in proofs:
                unverified[node] = "not verified"
            elif tag and not proofs[tag].verified:
                unverified[node] = proofs[tag].reason
        refusals = []
        kept = []
        for island in self._plan.kept_islands:
            if island.fuseable or island.core not in unverified:
                kept.append(island)
                continue
            why = unverified[island.core]
            text = f"the activation cannot be fused, and the delegate is {why}"
            refusals.append(Refusal(NonFuseableIsland.issue, text, island.unit))
        self._plan = Plan((*self._plan.refusals, *refusals), tuple(kept))
        return bool(refusals)

    def _demoted(self, demotion: Demotion, proposal: Proposal) -> None:
        script = self._rules.observer.demoted(demotion, proposal, self._trials)
        if script is not None:
            self._scripts.update(dict.fromkeys(demotion.nodes, script))
        if self._rules.strict:
            text = described(demotion)
            if script is not None:
                text += f"; repro: {script}"
            raise DemotionError(text)
