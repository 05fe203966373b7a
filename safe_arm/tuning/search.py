"""Search for the cheapest quantisation that is good enough: greedily by measurements, then reduced.

A spot in 16 bits helps only if its readers read 16 bits too; its result is rounded to 8 bits on the way otherwise. So a
move takes a spot and its readers to a level. A probe quantises the model and does no more. The move with the most
decibels for its cost is tried: a trial lowers and proves it. Once the target is reached, changes that turn out not to
be needed are taken back, the dearest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from safe_arm.accuracy import measure
from safe_arm.core.errors import SafeArmError
from safe_arm.tuning.costs import CPU, FLOAT, INT16
from safe_arm.tuning.metrics import Goal
from safe_arm.tuning.quantisation_choice import LEVELS, OBSERVERS, Choice, Level
from safe_arm.tuning.spots import Spot, noise_of, reading, spots_of
from safe_arm.tuning.trial import Trial, best_of
from safe_arm.tuning.workbench import Workbench

#: Maximum number of the worst spots that are considered in a round.
WORST = 6
#: A move that gains less, in dB, is not worth a trial.
LEAST_GAIN = 0.1


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        goal: the target.
        trials: all of them, in the order they were tried.
        best: the proven one that ``best_of`` returns.
        spots: the places where the quantisation can be changed, by name.
        why: why the target is not reached; empty if it is.
    """

    goal: Goal
    trials: tuple[Trial, ...]
    best: Trial
    spots: Mapping[str, Spot]
    why: str = ""


@dataclass(frozen=True)
class _Move:
    """Spots to take to a level.

    Attributes:
        spots: the spots.
        choice: the choice after the move.
        probed: its signal to noise in dB.
        gain: the decibels that it gains.
        extra: its additional cost, in 8-bit operations.
    """

    spots: tuple[Spot, ...]
    choice: Choice
    probed: float
    gain: float
    extra: float


def _union(sets: Iterable[Sequence[Spot]]) -> tuple[Spot, ...]:
    union: dict[str, Spot] = {}
    for spots in sets:
        union.update({spot.name: spot for spot in spots})
    return tuple(union.values())


@dataclass
class Search:
    """A search for the cheapest choice that reaches a target.

    Attributes:
        bench: tries choices.
        start: the quantisation of the model without any change.
        levels: the levels that an operator may be taken to, the cheaper first.
        float_on_cpu: float operators run on the CPU, not on the accelerator.
        told: called with one line about each trial.
        counting: returns a context manager for a named number of probes; its value is called after each probe.
        trials: the trials so far, in order.
    """

    bench: Workbench
    start: Choice
    levels: Sequence[Level]
    float_on_cpu: bool
    told: Callable[[str], None]
    counting: Callable[[str, int], AbstractContextManager[Callable[[], None]]]
    trials: list[Trial] = field(default_factory=list)
    _spots: dict[str, Spot] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._goal = self.bench.goal

    @property
    def best(self) -> Trial | None:
        """The best proven trial so far."""
        return best_of(self.trials, self._goal.at_least, self._goal.budget)

    def run(self) -> Found:
        """Search.

        Raises:
            SafeArmError: not even the model as it is quantised by default can be lowered and proven.
        """
        if self._goal.function is not None:
            self._goal.check_deterministic(self.bench.net)
        base = self._try(self.start, "as it is")
        if not base.proven:
            raise SafeArmError(
                f"the model, quantised as by default, is not proven: {base.reason}; see safe-arm check"
            )
        if self._reached(base) or not self._fits(base):
            return self._found()
        current = self._without_cost(base)
        quantised = self.bench.quantised(current.choice)
        self._spots = spots_of(quantised.module, quantised.reference)
        while not self._reached(current):
            better = self._one_move(current)
            if better is None:
                break
            current = better
        if self._reached(current):
            self._take_back(current)
        return self._found()

    def _found(self) -> Found:
        best = self.best
        assert best is not None  # the start is proven
        reached = self._reached(best)
        if math.isinf(self._goal.at_least):
            reached = self._fits(best)
        why = "" if reached else self._why_not(best)
        return Found(self._goal, tuple(self.trials), best, self._spots, why)

    def _try(self, choice: Choice, what: str) -> Trial:
        trial = self.bench.trial(choice)
        self.trials.append(trial)
        state = trial.reason
        if trial.proven:
            cost = f"{trial.cost:,.0f} {trial.unit}"
            state = f"{self._goal.name} {trial.value:.4g}, {cost}"
        self.told(f"trial {len(self.trials)}, {what}: {state}")
        return trial

    def _reached(self, trial: Trial) -> bool:
        reached = trial.proven and trial.value >= self._goal.at_least
        return reached and self._fits(trial)

    def _fits(self, trial: Trial) -> bool:
        return self._goal.budget.fits(trial)

    def _without_cost(self, base: Trial) -> Trial:
        """Try the changes that cost nothing: scales for each channel, another observer."""
        current = base
        changes: list[tuple[str, Any]] = []
        if not base.choice.per_channel:
            changes.append(("per_channel", True))
        for observer in OBSERVERS:
            if observer != base.choice.observer:
                changes.append(("observer", observer))
        for name, value in changes:
            choice = replace(current.choice, **{name: value})
            if self.bench.probe(choice) < _sqnr(current) + LEAST_GAIN:
                continue
            trial = self._try(choice, f"{name} {value}")
            better = trial.proven and trial.value > current.value
            if better and trial.cost <= current.cost * 1.01:
                current = trial
            if self._reached(current):
                break
        return current

    def _one_move(self, current: Trial) -> Trial | None:
        """Return the trial of the move that gains most for its cost, is proven and within the budget; None for none."""
        for level in self.levels:
            too_much = math.inf
            for move in sorted(self._gaining(current, level), key=self._order):
                if move.extra >= too_much:
                    continue
                names = ", ".join(spot.name for spot in move.spots)
                trial = self._try(move.choice, f"{names} in {level}")
                gains = trial.value > current.value or _sqnr(trial) > _sqnr(current)
                if trial.proven and gains and self._fits(trial):
                    return trial
                if trial.proven and not self._fits(trial):
                    too_much = move.extra
        return None

    def _gaining(self, current: Trial, level: Level) -> list[_Move]:
        """Return the moves to a level that gain; those of several spots only if none of one spot is enough."""
        worst = self._worst(current.choice)
        apart = [reading(spot, self._spots) for spot in worst]
        together = [_union(apart[:count]) for count in range(2, len(apart) + 1)]
        everything = []
        for spot in self._spots.values():
            if spot.operators and not spot.moves:
                everything.append(spot)
        together.append(tuple(everything))
        probed = {current.choice.key}
        moves = self._probed(apart, current, level, probed)
        if not any(map(self._is_enough, moves)):
            moves += self._probed(together, current, level, probed)
        return [move for move in moves if move.gain >= LEAST_GAIN]

    def _probed(
        self,
        sets: Sequence[tuple[Spot, ...]],
        current: Trial,
        level: Level,
        probed: set[str],
    ) -> list[_Move]:
        """Probe a move of each set of spots to a level, but no choice twice.

        Args:
            sets: the spots of each move.
            current: the trial that the moves start from.
            level: the level that they go to.
            probed: the keys of the choices that were probed; those of the moves are added.
        """
        moves = []
        with self.counting(f"probe {level}", len(sets)) as advance:
            for spots in sets:
                names = self._below(spots, current.choice, level)
                choice = current.choice.with_levels(names, level)
                if choice.key not in probed:
                    probed.add(choice.key)
                    ratio = self.bench.probe(choice)
                    extra = self._extra(current.choice, choice)
                    gain = ratio - _sqnr(current)
                    moves.append(_Move(spots, choice, ratio, gain, extra))
                advance()
        return moves

    def _is_enough(self, move: _Move) -> bool:
        """Tell whether the probe of a move reaches a target in dB."""
        return self._goal.function is None and move.probed >= self._goal.at_least

    def _order(self, move: _Move) -> tuple[bool, float]:
        """Put moves that reach a target in dB first, the cheapest of them; then by decibels for their cost."""
        if self._is_enough(move):
            return False, move.extra
        return True, -move.gain / max(move.extra, 1.0)

    def _worst(self, choice: Choice) -> list[Spot]:
        quantised = self.bench.quantised(choice)
        accuracy = measure(quantised.reference, quantised.module, self.bench.samples)
        spots = spots_of(quantised.module, quantised.reference)
        noise = noise_of(spots.values(), accuracy)
        noisy = [name for name in spots if name in self._spots and noise[name] > 0]
        ranked = sorted(noisy, key=lambda name: -noise[name])
        return [self._spots[name] for name in ranked[:WORST]]

    def _below(
        self,
        spots: Iterable[Spot],
        choice: Choice,
        level: Level,
    ) -> list[str]:
        """Return the operators of spots that are not at a level, or beyond it, yet."""
        at_least = LEVELS[LEVELS.index(level) :]
        names = []
        for spot in spots:
            for name in spot.operators:
                if choice.operators.get(name) not in at_least:
                    names.append(name)
        return names

    def _extra(self, before: Choice, after: Choice) -> float:
        """Estimate the additional cost of a choice over another, in 8-bit operations."""
        extra = 0
        for spot in self._spots.values():
            if spot.operators:
                factor = self._factor(after, spot) - self._factor(before, spot)
                extra += spot.operations * factor
        return extra

    def _factor(self, choice: Choice, spot: Spot) -> int:
        level = choice.operators.get(spot.operators[-1], "")
        if level == "int16":
            return INT16
        if level == "float":
            return CPU if self.float_on_cpu else FLOAT
        return choice.activations // 8

    def _take_back(self, current: Trial) -> None:
        """Take back, or to a cheaper level, the changes that the target does not need, the dearest first."""
        changed = []
        for spot in self._spots.values():
            if not current.choice.operators.keys().isdisjoint(spot.operators):
                changed.append(spot)
        start = current.choice
        changed.sort(key=lambda spot: -spot.operations * self._factor(start, spot))
        for spot in changed:
            level = current.choice.operators[spot.operators[-1]]
            for lower in (None, *self.levels[: self.levels.index(level)]):
                choice = current.choice.with_levels(spot.operators, lower)
                goal = self._goal
                if goal.function is None and self.bench.probe(choice) < goal.at_least:
                    continue
                name = lower or "the default"
                trial = self._try(choice, f"{spot.name} in {name} again")
                if self._reached(trial) and trial.cost <= current.cost:
                    current = trial
                    break

    def _why_not(self, best: Trial) -> str:
        figures = self._goal.text(best.value)
        if not self._fits(best):
            taken = []
            for name, number, limit in self._goal.budget.taken(best):
                taken.append(f"{number:,.0f} of {name} {limit:,}")
            return f"nothing is within the budget; the nearest has {figures} and takes {' and '.join(taken)}"
        levels = " and ".join(self.levels) or "no other level"
        text = f"the best that is proven has {figures}, with {levels} tried"
        dearer = best_of(self.trials, self._goal.at_least)
        if dearer is not None and not self._fits(dearer):
            text += f"; beyond the budget, {dearer.cost:,.0f} {dearer.unit} give {dearer.value:.4g}"
        failed = [trial for trial in self.trials if not trial.proven]
        if failed:
            text += f"; {len(failed)} trials were not proven, the last because {failed[-1].reason}"
        if "int16" not in self.levels:
            text += "; a profile with +int16 would let 16-bit activations be tried"
        if self._goal.function is not None:
            value = self._goal.of(self.bench.net)
            if value < self._goal.at_least:
                text += f"; the float model itself has {value:.4g}"
        return text


def _sqnr(trial: Trial) -> float:
    return -math.inf if trial.sqnr_db is None else trial.sqnr_db
