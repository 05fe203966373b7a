"""One trial: a choice that was quantised, lowered and proven, with its measurements. Needs no torch."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from safe_arm.tuning.quantisation_choice import Choice

#: A step of the front is a cliff if it costs at least so many times as much and gains less than so many dB.
CLIFF = 4.0
LITTLE_GAIN = 6.0


@dataclass(frozen=True)
class Trial:
    """The result of one choice.

    Attributes:
        choice: the quantisation of the model.
        value: the value of the metric.
        sqnr_db: signal to quantisation noise of the worst output; None without float outputs.
        worst_sample_db: the same on the worst sample.
        cost: the cost of an inference.
        unit: the unit of the cost.
        proven: every delegate was run and computes what its quantised graph computes.
        reason: why it is not; empty if it is.
        delegates: the number of delegates.
        would_keep: refused islands that ``--non-fuseable best`` would delegate.
        sram: bytes of SRAM, as ``--max-sram`` of ``export`` counts them; None unless the target is an Ethos-U.
    """

    choice: Choice
    value: float
    sqnr_db: float | None
    cost: float
    unit: str
    proven: bool
    reason: str = ""
    delegates: int = 0
    worst_sample_db: float | None = None
    sram: int | None = None
    would_keep: int = 0


def front(trials: Iterable[Trial]) -> list[Trial]:
    """Return the proven trials that no other beats in accuracy and cost, the cheapest first."""
    best: list[Trial] = []
    proven = [trial for trial in trials if trial.proven]
    for trial in sorted(proven, key=lambda trial: (trial.cost, -trial.value)):
        if not best or trial.value > best[-1].value:
            best.append(trial)
    return best


@dataclass(frozen=True)
class Budget:
    """The limits of an inference; None is no limit.

    Attributes:
        cycles: of the cost, which counts operators on the CPU too.
        sram: bytes.
    """

    cycles: int | None = None
    sram: int | None = None

    def taken(self, trial: Trial) -> list[tuple[str, float, int]]:
        """Return the name of each limit, what a trial takes of it, and the limit."""
        figures = []
        if self.cycles is not None:
            figures.append(("--max-cycles", trial.cost, self.cycles))
        if self.sram is not None:
            sram = math.inf if trial.sram is None else trial.sram
            figures.append(("--max-sram", sram, self.sram))
        return figures

    def share(self, trial: Trial) -> float:
        """Return what a trial takes of the limit that it is closest to, or exceeds most; 1 is all of it."""
        shares = [taken / max(limit, 1) for _, taken, limit in self.taken(trial)]
        return max(shares, default=0.0)

    def fits(self, trial: Trial) -> bool:
        """Tell whether a trial keeps all limits."""
        return all(taken <= limit for _, taken, limit in self.taken(trial))


def best_of(
    trials: Sequence[Trial],
    at_least: float,
    budget: Budget = Budget(),
) -> Trial | None:
    """Return the cheapest proven trial within the budget that reaches a target.

    If none reaches it, the most accurate one within the budget; if none is within it, the nearest; None if none is
    proven.
    """
    proven = [trial for trial in trials if trial.proven]
    within = [trial for trial in proven if budget.fits(trial)]
    reached = [trial for trial in within if trial.value >= at_least]
    if reached:
        return min(reached, key=lambda trial: trial.cost)
    if within:
        return max(within, key=lambda trial: trial.value)
    return min(proven, key=budget.share, default=None)


def cliff(trials: Iterable[Trial], best: Trial) -> tuple[Trial, Trial] | None:
    """Return two neighbours of the front up to a trial of which one costs many times the other for few decibels.

    Returns:
        The steepest such pair, the cheaper first; None if there is none.
    """
    steepest = None
    steepness = CLIFF
    points = [trial for trial in front(trials) if trial.cost <= best.cost]
    for before, after in pairwise(points):
        if before.sqnr_db is None or after.sqnr_db is None:
            continue
        times = after.cost / max(before.cost, 1)
        if times >= steepness and after.sqnr_db - before.sqnr_db < LITTLE_GAIN:
            steepest = before, after
            steepness = times
    return steepest


@dataclass
class TrialLog:
    """A log of trials in a file, one JSON object a line, so that a run that was interrupted can continue.

    Attributes:
        path: the file.
        subject: an identification of the model and its options; lines of another subject are not used.
        estimator: the tool that estimates costs, such as ``Vela 5.2.0``; trials of another one are not used, because
            their costs cannot be compared. Empty if none does.
        trials: the trials, by the key of their choice.
        probes: the accuracy of each choice that was only quantised, by its key.
        others: the number of trials of the subject by each other estimator.
    """

    path: Path
    subject: str
    estimator: str = ""
    trials: dict[str, Trial] = field(default_factory=dict)
    probes: dict[str, float] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        text = ""
        if self.path.exists():
            text = self.path.read_text(encoding="utf-8")
        self._cut_short = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            self._take(line)

    def _take(self, line: str) -> None:
        try:
            content = json.loads(line)
            if content.get("subject") != self.subject:
                return
            if "trial" in content:
                estimator = content.get("estimator", "")
                if estimator != self.estimator:
                    self.others[estimator] += 1
                    return
                choice = Choice(**content["trial"].pop("choice"))
                self.trials[choice.key] = Trial(choice=choice, **content["trial"])
            else:
                self.probes[content["choice"]] = content["sqnr_db"]
        except (ValueError, TypeError, KeyError, AttributeError):
            return  # the last line of a run that was killed while it wrote

    def add(self, trial: Trial) -> None:
        """Add a trial."""
        self.trials[trial.choice.key] = trial
        self._write({"estimator": self.estimator, "trial": asdict(trial)})

    def add_probe(self, key: str, sqnr_db: float) -> None:
        """Add the accuracy of a choice that was only quantised."""
        self.probes[key] = sqnr_db
        self._write({"choice": key, "sqnr_db": sqnr_db})

    def _write(self, content: dict[str, Any]) -> None:
        line = json.dumps({"subject": self.subject, **content})
        with self.path.open("a", encoding="utf-8") as file:
            if self._cut_short:
                file.write("\n")
            self._cut_short = False
            file.write(f"{line}\n")
