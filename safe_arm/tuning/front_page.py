"""The trials as text and as a page with a drawing: accuracy against cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from safe_arm.core.templates import templates
from safe_arm.report.numbers import counted
from safe_arm.tuning.quantisation_choice import LEVELS, Choice
from safe_arm.tuning.search import Found
from safe_arm.tuning.trial import Trial, front

#: The ends of the drawing's axes, the first at the least value; the template draws around them.
_X = (90, 660)
_Y = (340, 50)
#: Maximum number of operators of a level that are named.
_NAMED = 8


def changed(choice: Choice) -> str:
    """Return the changes of a choice in words."""
    parts = []
    if choice.observer != "histogram":
        parts.append(f"observer {choice.observer}")
    for level in LEVELS:
        names = choice.of_level(level)
        if not names:
            continue
        part = f"{level}: {', '.join(names[:_NAMED])}"
        if len(names) > _NAMED:
            part += f" and {len(names) - _NAMED} more"
        parts.append(part)
    return "; ".join(parts) or "nothing"


def front_text(found: Found) -> str:
    """Return the front of accuracy against cost as a table, the cheapest first; a star marks the recipe."""
    rows = [("", found.goal.name, *_units(found), "changed")]
    for trial in front(found.trials):
        star = "*" if trial.choice == found.best.choice else ""
        rows.append((star, *_figures(trial, found), changed(trial.choice)))
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    lines = []
    for *figures, change in rows:
        lines.append("  ".join((*map(str.rjust, figures, widths), change)))
    return "\n".join(lines)


def _units(found: Found) -> tuple[str, ...]:
    """Return the heads of the columns of the costs; SRAM has one if it is limited."""
    if found.goal.budget.sram is None:
        return (found.best.unit,)
    return found.best.unit, "SRAM"


def _figures(trial: Trial, found: Found) -> tuple[str, ...]:
    """Return the accuracy and the costs of a trial, in the order of the columns."""
    figures = [f"{trial.value:.4g}", f"{trial.cost:,.0f}"]
    if found.goal.budget.sram is not None:
        figures.append("" if trial.sram is None else f"{trial.sram:,}")
    return tuple(figures)


def front_page(found: Found, title: str) -> str:
    """Return the trials as a page: a drawing, with lines at the accuracy to reach and at the most cycles, and a table.

    Args:
        found: the result of the search.
        title: the name of the net.
    """
    goal = found.goal
    has_target = math.isfinite(goal.at_least)
    proven = [trial for trial in found.trials if trial.proven]
    values = [trial.value for trial in proven]
    costs = [trial.cost for trial in proven]
    if has_target:
        values.append(goal.at_least)
    if goal.budget.cycles is not None:
        costs.append(goal.budget.cycles)
    state = found.why or "the recipe is the most accurate within the budget"
    if has_target and found.why:
        state = f"the target is not reached: {found.why}"
    elif has_target:
        state = "the recipe reaches the target"
    template = templates("safe_arm.tuning", "").get_template("front.html.j2")
    return template.render(
        title=title,
        found=found,
        goal=goal,
        has_target=has_target,
        trials=counted(len(found.trials), "trial"),
        proven=proven,
        front=front(proven),
        state=state,
        units=_units(found),
        x=_Axis(costs, *_X, may_be_log=True),
        y=_Axis(values, *_Y),
        figures=partial(_figures, found=found),
        changed=changed,
    )


class _Axis:
    """An axis of the drawing, from one place to another.

    Args:
        values: what it has to show.
        first, last: the places of its ends.
        may_be_log: make it logarithmic if the values differ by a factor of ten or more.

    Attributes:
        is_log: true if it is logarithmic.
        first: as given.
    """

    def __init__(
        self,
        values: list[float],
        first: int,
        last: int,
        may_be_log: bool = False,
    ) -> None:
        self._low = min(values)
        self._high = max(values)
        self.is_log = may_be_log and 0 < 10 * self._low <= self._high
        self._scale = math.log if self.is_log else float
        self.first = first
        self._last = last

    def place(self, value: float) -> int:
        """Return the place of a value."""
        low, high, at = map(self._scale, (self._low, self._high, value))
        share = 0.5
        if high > low:
            share = (at - low) / (high - low)
        return round(self.first + share * (self._last - self.first))

    def ticks(self, apart: int) -> list[float]:
        """Return round values within the axis, at least so many places apart."""
        candidates = self._log_ticks() if self.is_log else self._linear_ticks()
        for values in candidates:
            if values and self._are_apart(values, apart):
                return values
        return list(dict.fromkeys((self._low, self._high)))

    def _log_ticks(self) -> Iterator[list[float]]:
        first = math.floor(math.log10(self._low))
        powers = range(first, math.ceil(math.log10(self._high)) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            values = [step * 10.0**power for power in powers for step in steps]
            yield [value for value in values if self._low <= value <= self._high]

    def _linear_ticks(self) -> Iterator[list[float]]:
        span = self._high - self._low
        if not span:
            return
        unit = 10.0 ** math.floor(math.log10(span))
        for share in (0.1, 0.2, 0.5, 1, 2, 5):
            step = share * unit
            first = math.ceil(self._low / step)
            last = math.floor(self._high / step)
            yield [number * step for number in range(first, last + 1)]

    def _are_apart(self, values: list[float], apart: int) -> bool:
        places = [self.place(value) for value in values]
        gaps = [abs(after - before) for before, after in pairwise(places)]
        return min(gaps, default=0) >= apart
