"""The trials as text and as a page with a drawing: accuracy against cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from safe_arm.core.templates import templates
from safe_arm.report.numbers import counted
from safe_arm.tuning.quantisation_choice import LEVELS, Choice
from safe_arm.tuning.search import Found
from safe_arm.tuning.trial import Budget, Trial, front

#: Size of the drawing, and the room beside its points.
_WIDTH = 720
_HEIGHT = 420
_LEFT = 90
_RIGHT = 60
_TOP = 50
_BOTTOM = 80
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


def front_text(found: Found, metric: str, budget: Budget) -> str:
    """Return the front of accuracy against cost as a table, the cheapest first; a star marks the recipe.

    Args:
        found: the result of the search.
        metric: the name of the accuracy.
        budget: its limits; the table has the SRAM if it is limited.
    """
    rows = [("", metric, *_units(found, budget), "changed")]
    for trial in front(found.trials):
        star = "*" if trial.choice == found.best.choice else ""
        rows.append((star, *_figures(trial, budget), changed(trial.choice)))
    widths = [0] * (len(rows[0]) - 1)
    for row in rows:
        for column in range(len(widths)):
            widths[column] = max(widths[column], len(row[column]))
    lines = []
    for *figures, change in rows:
        lines.append("  ".join((*map(str.rjust, figures, widths), change)))
    return "\n".join(lines)


def _units(found: Found, budget: Budget) -> tuple[str, ...]:
    """Return the heads of the columns of the costs."""
    if budget.sram is None:
        return (found.best.unit,)
    return found.best.unit, "SRAM"


def _figures(trial: Trial, budget: Budget) -> tuple[str, ...]:
    """Return the accuracy and the costs of a trial, in the order of the columns."""
    figures = [f"{trial.value:.4g}", f"{trial.cost:,.0f}"]
    if budget.sram is not None:
        figures.append("" if trial.sram is None else f"{trial.sram:,}")
    return tuple(figures)


def front_page(
    found: Found,
    metric: str,
    at_least: float,
    title: str,
    budget: Budget,
) -> str:
    """Return the trials as a page: a drawing, and a table.

    Args:
        found: the result of the search.
        metric: the name of the accuracy.
        at_least: the accuracy to reach; infinite for none.
        title: the name of the net.
        budget: its limits; the drawing has a line at that of the cycles, the table the SRAM if it is limited.
    """
    template = templates("safe_arm.tuning", "").get_template("front.html.j2")
    drawn = _drawn(found, at_least, budget)
    return template.render(
        title=title, metric=metric, at_least=f"{at_least:g}", **drawn
    )


def _drawn(found: Found, at_least: float, budget: Budget) -> dict[str, Any]:
    proven = [trial for trial in found.trials if trial.proven]
    best = front(proven)
    values = [trial.value for trial in proven]
    if math.isfinite(at_least):
        values.append(at_least)
    costs = [trial.cost for trial in proven]
    if budget.cycles is not None:
        costs.append(budget.cycles)
    x = _Axis(costs, _LEFT, _WIDTH - _RIGHT, may_be_log=True)
    y = _Axis(values, _HEIGHT - _BOTTOM, _TOP)
    points = []
    for trial in proven:
        value, cost, *_ = _figures(trial, budget)
        points.append(
            {
                "x": x.place(trial.cost),
                "y": y.place(trial.value),
                "front": trial in best,
                "best": trial == found.best,
                "text": f"{value} at {cost}: {changed(trial.choice)}",
            }
        )
    rows = []
    for number, trial in enumerate(found.trials, 1):
        rows.append(_row(number, trial, trial == found.best, budget))
    value, cost, *_ = _figures(found.best, budget)
    trials = counted(len(found.trials), "trial")
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "right": _WIDTH - _RIGHT,
        "bottom": _HEIGHT - _BOTTOM,
        "unit": found.best.unit,
        "scale": ", logarithmic" if x.is_log else "",
        "units": _units(found, budget),
        "summary": f"{trials}, {len(proven)} proven; {_state(found, at_least)}.",
        "recipe": f"the recipe: {value} at {cost}",
        "points": points,
        "line": " ".join(f"{x.place(t.cost)},{y.place(t.value)}" for t in best),
        "x_ticks": [(x.place(cost), f"{cost:,.0f}") for cost in x.ticks(80)],
        "y_ticks": [(y.place(value), f"{value:.4g}") for value in y.ticks(40)],
        "target": y.place(at_least) if math.isfinite(at_least) else None,
        **_limit(budget, x),
        "rows": rows,
    }


def _limit(budget: Budget, x: _Axis) -> dict[str, Any]:
    """Return the place and the text of the line at the most cycles; empty without a limit."""
    if budget.cycles is None:
        return {"limit": None, "at_most": ""}
    text = f"at most {budget.cycles:,}"
    return {"limit": x.place(budget.cycles), "at_most": text}


def _state(found: Found, at_least: float) -> str:
    """Return in words how the search ended."""
    if math.isfinite(at_least):
        if found.reached:
            return "the recipe reaches the target"
        return f"the target is not reached: {found.why}"
    return found.why or "the recipe is the most accurate within the budget"


def _row(
    number: int,
    trial: Trial,
    best: bool,
    budget: Budget,
) -> dict[str, Any]:
    name = str(number)
    change = changed(trial.choice)
    figures = _figures(trial, budget)
    if best:
        name += ", the recipe"
    if not trial.proven:
        name = f"{number}, not proven"
        figures = ("",) * len(figures)
        change += f": {trial.reason}"
    return {"name": name, "figures": figures, "changed": change}


class _Axis:
    """An axis of the drawing, from one place to another.

    Args:
        values: what it has to show.
        first, last: the places of its ends.
        may_be_log: make it logarithmic if the values differ by a factor of ten or more.

    Attributes:
        is_log: true if it is logarithmic.
    """

    def __init__(
        self, values: list[float], first: int, last: int, may_be_log: bool = False
    ) -> None:
        self._low = min(values)
        self._high = max(values)
        self.is_log = may_be_log and 0 < 10 * self._low <= self._high
        self._first = first
        self._last = last

    def place(self, value: float) -> int:
        """Return the place of a value."""
        low, high, at = self._low, self._high, value
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(value)
        share = 0.5
        if high > low:
            share = (at - low) / (high - low)
        return round(self._first + share * (self._last - self._first))

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
