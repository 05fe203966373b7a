"""One trial: a choice that was quantised, lowered and proven, and what was measured. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safe_arm.tuning.quantisation_choice import Choice


@dataclass(frozen=True)
class Trial:
    """What became of one choice.

    Attributes:
        choice: how the model was quantised.
        value: what the metric gives.
        sqnr_db: signal to quantisation noise of the worst output; None without float outputs.
        cost: what an inference costs.
        unit: what the cost counts.
        proven: every delegate was run and computes what its quantised graph computes.
        reason: why it is not; empty if it is.
        delegates: how many.
    """

    choice: Choice
    value: float
    sqnr_db: float | None
    cost: float
    unit: str
    proven: bool
    reason: str = ""
    delegates: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the trial as JSON's own types."""
        return asdict(self)


def front(trials: Iterable[Trial]) -> list[Trial]:
    """Return the proven trials that no other beats in accuracy and cost, the cheapest first."""
    best: list[Trial] = []
    for trial in sorted(
        (t for t in trials if t.proven), key=lambda t: (t.cost, -t.value)
    ):
        if not best or trial.value > best[-1].value:
            best.append(trial)
    return best


def best_of(trials: Sequence[Trial], at_least: float) -> Trial | None:
    """Return the cheapest proven trial that reaches a target; if none does, the most accurate proven one."""
    proven = [trial for trial in trials if trial.proven]
    reached = [trial for trial in proven if trial.value >= at_least]
    if reached:
        return min(reached, key=lambda trial: trial.cost)
    return max(proven, key=lambda trial: trial.value, default=None)


class TrialLog:
    """What was tried, kept in a file as it is found, one JSON object a line: a run that was interrupted goes on there.

    Args:
        path: the file; None to keep nothing.
        subject: what the trials are of; lines of another subject are not used.
    """

    def __init__(self, path: Path | None, subject: str) -> None:
        self._path, self._subject = path, subject
        self.trials: dict[str, Trial] = {}
        self.probes: dict[str, float] = {}
        text = path.read_text(encoding="utf-8") if path and path.exists() else ""
        self._cut_short = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            self._take(line)

    def _take(self, line: str) -> None:
        try:
            found = json.loads(line)
            if found.get("subject") != self._subject:
                return
            if "trial" in found:
                trial = Trial(
                    **{**found["trial"], "choice": Choice(**found["trial"]["choice"])}
                )
                self.trials[trial.choice.key] = trial
            else:
                self.probes[found["choice"]] = found["sqnr_db"]
        except (ValueError, TypeError, KeyError, AttributeError):
            return  # the last line of a run that was killed while it wrote

    def add(self, trial: Trial) -> None:
        """Keep a trial."""
        self.trials[trial.choice.key] = trial
        self._write({"trial": trial.to_dict()})

    def add_probe(self, key: str, sqnr_db: float) -> None:
        """Keep the accuracy of a choice that was quantised only."""
        self.probes[key] = sqnr_db
        self._write({"choice": key, "sqnr_db": sqnr_db})

    def _write(self, content: dict[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                start, self._cut_short = "\n" if self._cut_short else "", False
                file.write(
                    f"{start}{json.dumps({'subject': self._subject, **content})}\n"
                )
