"""The trials as text and as a page with a drawing: accuracy against cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safe_arm.tuning.quantisation_choice import LEVELS, Choice
from safe_arm.tuning.search import Found
from safe_arm.tuning.trial import Trial, front

_WIDTH, _HEIGHT = 720, 420
#: How many operators of a level are named.
_NAMED = 8


def changed(choice: Choice) -> str:
    """Say what a choice changes."""
    parts = [] if choice.observer == "histogram" else [f"observer {choice.observer}"]
    for level in LEVELS:
        if names := choice.of_level(level):
            rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            parts.append(f"{level}: {', '.join(names[:_NAMED])}{rest}")
    return "; ".join(parts) or "nothing"


def front_text(found: Found, metric: str) -> str:
    """Return the front of accuracy against cost as a table, the cheapest first; a star marks the recipe."""
    rows = [
        (
            "*" if trial.choice == found.best.choice else "",
            f"{trial.value:.4g}",
            f"{trial.cost:,.0f}",
            changed(trial.choice),
        )
        for trial in front(found.trials)
    ]
    head = ("", metric, found.best.unit, "changed")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(3)]
    lines = (
        "  ".join((*(t.rjust(w) for t, w in zip(row[:3], widths, strict=True)), row[3]))
        for row in (head, *rows)
    )
    return "\n".join(lines)


def front_page(found: Found, metric: str, at_least: float, title: str) -> str:
    """Return the trials as a page: a drawing, and a table."""
    from jinja2 import Environment, StrictUndefined

    text = (Path(__file__).parent / "front.html.j2").read_text(encoding="utf-8")
    template = Environment(
        autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    ).from_string(text)
    return template.render(
        title=title, metric=metric, at_least=f"{at_least:g}", **_drawn(found, at_least)
    )


def _drawn(found: Found, at_least: float) -> dict[str, Any]:
    proven = [trial for trial in found.trials if trial.proven]
    best = front(proven)
    x = _Axis([trial.cost for trial in proven], 70, _WIDTH - 40)
    y = _Axis([*(trial.value for trial in proven), at_least], _HEIGHT - 60, 30)
    state = (
        "reaches the target"
        if found.reached
        else f"the target is not reached: {found.why}"
    )
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "unit": found.best.unit,
        "summary": f"{len(found.trials)} trials, {len(proven)} of them proven; {state}.",
        "points": [
            {
                "x": x.place(t.cost),
                "y": y.place(t.value),
                "front": t in best,
                "best": t == found.best,
                "text": f"{t.value:.4g} at {t.cost:,.0f}: {changed(t.choice)}",
            }
            for t in proven
        ],
        "line": " ".join(f"{x.place(t.cost)},{y.place(t.value)}" for t in best),
        "x_ticks": [(x.place(v), f"{v:,.0f}") for v in x.ends],
        "y_ticks": [(y.place(v), f"{v:.4g}") for v in y.ends],
        "target": y.place(at_least),
        "rows": [
            _row(number, trial, trial == found.best)
            for number, trial in enumerate(found.trials, 1)
        ],
    }


def _row(number: int, trial: Trial, best: bool) -> dict[str, str]:
    if not trial.proven:
        return {
            "name": f"{number}, not proven",
            "value": "",
            "cost": "",
            "changed": f"{changed(trial.choice)}: {trial.reason}",
        }
    name = f"{number}, the recipe" if best else str(number)
    return {
        "name": name,
        "value": f"{trial.value:.4g}",
        "cost": f"{trial.cost:,.0f}",
        "changed": changed(trial.choice),
    }


class _Axis:
    """Values laid out between two places."""

    def __init__(self, values: list[float], first: int, last: int) -> None:
        self.ends = tuple(dict.fromkeys((min(values), max(values))))
        self._first, self._last = first, last

    def place(self, value: float) -> int:
        """Return where a value is drawn."""
        low, high = self.ends[0], self.ends[-1]
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self._first + share * (self._last - self._first))
