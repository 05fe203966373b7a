"""The trials as text and as a page with a drawing: accuracy against cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safe_arm.tuning.quantisation_choice import LEVELS, Choice
from safe_arm.tuning.search import Found
from safe_arm.tuning.trial import Trial, front

_WIDTH = 720
_HEIGHT = 420
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


def front_text(found: Found, metric: str) -> str:
    """Return the front of accuracy against cost as a table, the cheapest first; a star marks the recipe."""
    rows = [("", metric, found.best.unit, "changed")]
    for trial in front(found.trials):
        star = "*" if trial.choice == found.best.choice else ""
        rows.append((star, *_figures(trial), changed(trial.choice)))
    widths = [0, 0, 0]
    for row in rows:
        for column in range(3):
            widths[column] = max(widths[column], len(row[column]))
    lines = []
    for *figures, change in rows:
        lines.append("  ".join((*map(str.rjust, figures, widths), change)))
    return "\n".join(lines)


def _figures(trial: Trial) -> tuple[str, str]:
    return f"{trial.value:.4g}", f"{trial.cost:,.0f}"


def front_page(found: Found, metric: str, at_least: float, title: str) -> str:
    """Return the trials as a page: a drawing, and a table."""
    from jinja2 import Environment, StrictUndefined

    text = (Path(__file__).parent / "front.html.j2").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    template = environment.from_string(text)
    return template.render(
        title=title, metric=metric, at_least=f"{at_least:g}", **_drawn(found, at_least)
    )


def _drawn(found: Found, at_least: float) -> dict[str, Any]:
    proven = [trial for trial in found.trials if trial.proven]
    best = front(proven)
    x = _Axis([trial.cost for trial in proven], 70, _WIDTH - 40)
    y = _Axis([*(trial.value for trial in proven), at_least], _HEIGHT - 60, 30)
    points = []
    for trial in proven:
        value, cost = _figures(trial)
        points.append(
            {
                "x": x.place(trial.cost),
                "y": y.place(trial.value),
                "front": trial in best,
                "best": trial == found.best,
                "text": f"{value} at {cost}: {changed(trial.choice)}",
            }
        )
    state = "reaches the target"
    if not found.reached:
        state = f"the target is not reached: {found.why}"
    rows = []
    for number, trial in enumerate(found.trials, 1):
        rows.append(_row(number, trial, trial == found.best))
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "unit": found.best.unit,
        "summary": f"{len(found.trials)} trials, {len(proven)} of them proven; {state}.",
        "points": points,
        "line": " ".join(f"{x.place(t.cost)},{y.place(t.value)}" for t in best),
        "x_ticks": [(x.place(cost), f"{cost:,.0f}") for cost in x.ends],
        "y_ticks": [(y.place(value), f"{value:.4g}") for value in y.ends],
        "target": y.place(at_least),
        "rows": rows,
    }


def _row(number: int, trial: Trial, best: bool) -> dict[str, str]:
    name = str(number)
    change = changed(trial.choice)
    value, cost = _figures(trial)
    if best:
        name += ", the recipe"
    if not trial.proven:
        name = f"{number}, not proven"
        value = ""
        cost = ""
        change += f": {trial.reason}"
    return {"name": name, "value": value, "cost": cost, "changed": change}


class _Axis:
    """An axis of the drawing, from one place to another."""

    def __init__(self, values: list[float], first: int, last: int) -> None:
        self.ends = tuple(dict.fromkeys((min(values), max(values))))
        self._first = first
        self._last = last

    def place(self, value: float) -> int:
        """Return the place of a value."""
        low = self.ends[0]
        high = self.ends[-1]
        share = 0.5
        if high > low:
            share = (value - low) / (high - low)
        return round(self._first + share * (self._last - self._first))
