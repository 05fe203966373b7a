"""The search for the cheapest quantisation that is good enough: greedy by what is measured, then made smaller again.

A spot in 16 bits helps only if those that read it read 16 bits too: its result would be rounded to 8 on the way else.
So a move takes a spot, with or without its readers, to a level. Moves are probed, which quantises the model and no
more; the one with the most decibels for its cost is tried, which lowers and proves it. Once the target is reached,
what turns out not to be needed is taken back, the dearest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from safe_arm.accuracy import measure
from safe_arm.core.errors import SafeArmError
from safe_arm.tuning.costs import CPU, FLOAT, INT16
from safe_arm.tuning.quantisation_choice import LEVELS, OBSERVERS, Choice, Level
from safe_arm.tuning.spots import Spot, noise_of, reading, spots_of
from safe_arm.tuning.trial import Trial, best_of
from safe_arm.tuning.workbench import Workbench

#: How many of the worst spots are looked at in a round.
WORST = 6
#: A move that gains less, in dB, is not worth a trial.
LEAST_GAIN = 0.1


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        trials: all of them, in the order they were tried.
        best: the cheapest proven one that reaches the target; if none does, the most accurate proven one.
        reached: whether it reaches the target.
        spots: the places where the quantisation can be changed, by name.
        why: why the target is not reached; empty if it is.
    """

    trials: tuple[Trial, ...]
    best: Trial
    reached: bool
    spots: Mapping[str, Spot]
    why: str = ""


@dataclass(frozen=True)
class _Move:
    """Spots to take to a level: the choice after it, its decibels, how many more those are, what it costs more."""

    spots: tuple[Spot, ...]
    choice: Choice
    probed: float
    gain: float
    extra: float


def _union(sets: Iterable[Sequence[Spot]]) -> tuple[Spot, ...]:
    return tuple({spot.name: spot for each in sets for spot in each}.values())


def _uncounted(name: str, total: int) -> AbstractContextManager[Callable[[], None]]:
    return nullcontext(lambda: None)


class Search:
    """Looks for the cheapest choice that reaches a target.

    Args:
        bench: tries choices.
        start: how the model is quantised without any change.
        levels: what an operator may be taken to, the cheaper first.
        float_on_cpu: what is left float runs on the CPU, not on the accelerator.
        told: called with one line about each trial.
        counting: entered, with a name and a number, for so many probes; yields what is called after each.

    Attributes:
        trials: what was tried so far, in order.
    """

    def __init__(
        self,
        bench: Workbench,
        start: Choice,
        levels: Sequence[Level] = LEVELS,
        float_on_cpu: bool = True,
        told: Callable[[str], None] = lambda line: None,
        counting: Callable[
            [str, int], AbstractContextManager[Callable[[], None]]
        ] = _uncounted,
    ) -> None:
        self._counting = counting
        self._bench, self._start, self._levels, self._told = (
            bench,
            start,
            tuple(levels),
            told,
        )
        self._factors = {"int16": INT16, "float": CPU if float_on_cpu else FLOAT}
        self._goal = bench.goal
        self._spots: dict[str, Spot] = {}
        self.trials: list[Trial] = []

    @property
    def best(self) -> Trial | None:
        """The best proven trial so far."""
        return best_of(self.trials, self._goal.at_least)

    def run(self) -> Found:
        """Search.

        Raises:
            SafeArmError: not even the model as it is quantised by default can be lowered and proven.
        """
        if self._goal.function is not None:
            self._goal.check_deterministic(self._bench.net)
        base = self._try(self._start, "as it is")
        if not base.proven:
            raise SafeArmError(
                f"the model, quantised as by default, is not proven: {base.reason}; see safe-arm check"
            )
        if self._reached(base):
            return Found(tuple(self.trials), base, True, self._spots)
        current = self._without_cost(base)
        quantised = self._bench.quantised(current.choice)
        self._spots = spots_of(quantised.module, quantised.reference)
        while not self._reached(current):
            better = self._one_move(current)
            if better is None:
                break
            current = better
        if self._reached(current):
            self._take_back(current)
        best = self.best
        assert best is not None  # the start is proven
        reached = self._reached(best)
        return Found(
            tuple(self.trials),
            best,
            reached,
            self._spots,
            "" if reached else self._why_not(best),
        )

    def _try(self, choice: Choice, what: str) -> Trial:
        trial = self._bench.trial(choice)
        self.trials.append(trial)
        state = (
            f"{self._goal.name} {trial.value:.4g}, {trial.cost:,.0f} {trial.unit}"
            if trial.proven
            else trial.reason
        )
        self._told(f"trial {len(self.trials)}, {what}: {state}")
        return trial

    def _reached(self, trial: Trial) -> bool:
        return trial.proven and trial.value >= self._goal.at_least

    def _without_cost(self, base: Trial) -> Trial:
        """Try what costs nothing: scales for each channel, another observer."""
        current = base
        changes: list[dict[str, Any]] = (
            [] if base.choice.per_channel else [{"per_channel": True}]
        )
        changes += [
            {"observer": each} for each in OBSERVERS if each != base.choice.observer
        ]
        for change in changes:
            choice = replace(current.choice, **change)
            if self._bench.probe(choice) < self._sqnr(current) + LEAST_GAIN:
                continue
            trial = self._try(
                choice, ", ".join(f"{name} {value}" for name, value in change.items())
            )
            if (
                trial.proven
                and trial.value > current.value
                and trial.cost <= current.cost * 1.01
            ):
                current = trial
            if self._reached(current):
                break
        return current

    def _sqnr(self, trial: Trial) -> float:
        return -math.inf if trial.sqnr_db is None else trial.sqnr_db

    def _one_move(self, current: Trial) -> Trial | None:
        """Return the trial of the move that gains most for its cost and is proven; None if no move gains."""
        for level in self._levels:
            for move in sorted(self._gaining(current, level), key=self._order):
                trial = self._try(
                    move.choice,
                    f"{', '.join(spot.name for spot in move.spots)} in {level}",
                )
                if trial.proven and (
                    trial.value > current.value
                    or self._sqnr(trial) > self._sqnr(current)
                ):
                    return trial
        return None

    def _gaining(self, current: Trial, level: Level) -> list[_Move]:
        """Return the moves to a level that gain; those of several spots only if none of one spot is enough."""
        worst = self._worst(current.choice, level)
        apart = [reading(spot, self._spots) for spot in worst]
        together = [_union(apart[:count]) for count in range(2, len(apart) + 1)]
        together.append(
            tuple(
                spot
                for spot in self._spots.values()
                if not spot.moves and spot.operators
            )
        )
        found: list[_Move] = []
        seen = {current.choice.key}
        for sets in (apart, together):
            with self._counting(f"probe {level}", len(sets)) as advance:
                for spots in sets:
                    choice = current.choice.with_levels(
                        self._below(spots, current.choice, level), level
                    )
                    if choice.key not in seen:
                        seen.add(choice.key)
                        probed = self._bench.probe(choice)
                        extra = self._extra(current.choice, choice)
                        found.append(
                            _Move(
                                tuple(spots),
                                choice,
                                probed,
                                probed - self._sqnr(current),
                                extra,
                            )
                        )
                    advance()
            if self._goal.function is None and any(
                move.probed >= self._goal.at_least for move in found
            ):
                break
        return [move for move in found if move.gain >= LEAST_GAIN]

    def _order(self, move: _Move) -> tuple[bool, float]:
        """Put moves that reach a target in dB first, the cheapest of them; then by decibels for their cost."""
        if self._goal.function is None and move.probed >= self._goal.at_least:
            return False, move.extra
        return True, -move.gain / max(move.extra, 1.0)

    def _worst(self, choice: Choice, level: Level) -> list[Spot]:
        quantised = self._bench.quantised(choice)
        accuracy = measure(quantised.reference, quantised.module, self._bench.samples)
        now = spots_of(quantised.module, quantised.reference)
        noise = noise_of(now.values(), accuracy)
        known = [name for name in now if name in self._spots]
        ranked = sorted(known, key=lambda name: -noise[name])
        return [self._spots[name] for name in ranked if noise[name] > 0][:WORST]

    def _below(self, spots: Iterable[Spot], choice: Choice, level: Level) -> list[str]:
        """Return the operators of spots that are not at a level, or beyond it, yet."""
        done = LEVELS[LEVELS.index(level) :]
        return [
            n
            for spot in spots
            for n in spot.operators
            if choice.operators.get(n) not in done
        ]

    def _extra(self, before: Choice, after: Choice) -> float:
        """Estimate what a choice costs more than another, in 8-bit operations."""
        return sum(
            spot.operations * (self._factor(after, spot) - self._factor(before, spot))
            for spot in self._spots.values()
            if spot.operators
        )

    def _factor(self, choice: Choice, spot: Spot) -> int:
        return self._factors.get(
            choice.operators.get(spot.operators[-1], ""), choice.activations // 8
        )

    def _take_back(self, current: Trial) -> Trial:
        """Take back, or to a cheaper level, what the target does not need, the dearest first."""
        changed = [
            s
            for s in self._spots.values()
            if any(name in current.choice.operators for name in s.operators)
        ]
        for spot in sorted(
            changed, key=lambda s: -s.operations * self._factor(current.choice, s)
        ):
            level = current.choice.operators[spot.operators[-1]]
            cheaper = (None, *self._levels[: self._levels.index(level)])
            for lower in cheaper:
                choice = current.choice.with_levels(spot.operators, lower)
                if (
                    self._goal.function is None
                    and self._bench.probe(choice) < self._goal.at_least
                ):
                    continue
                trial = self._try(
                    choice, f"{spot.name} in {lower or 'the default'} again"
                )
                if self._reached(trial) and trial.cost <= current.cost:
                    current = trial
                    break
        return current

    def _why_not(self, best: Trial) -> str:
        levels = " and ".join(self._levels) or "no other level"
        text = f"the best that is proven has {self._goal.name} {best.value:.4g}, with {levels} tried"
        failed = [trial for trial in self.trials if not trial.proven]
        text += (
            f"; {len(failed)} trials were not proven, the last because {failed[-1].reason}"
            if failed
            else ""
        )
        if "int16" not in self._levels:
            text += "; a profile with +int16 would let 16-bit activations be tried"
        if (
            self._goal.function is not None
            and (value := self._goal.of(self._bench.net)) < self._goal.at_least
        ):
            text += f"; the float model itself has {value:.4g}"
        return text
