"""The section about accuracy on the page: the plot along the net, and the worst units."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from safe_arm.core.record import Report
from safe_arm.core.unit_accuracy import EXACT_DB, Accuracy
from safe_arm.report.accuracy_shades import ShadedUnit, shaded_units
from safe_arm.report.accuracy_text import (
    WORST,
    decibels,
    explanation,
    outputs_line,
    share_of_noise,
)

#: The drawing's size, and what is left of it on the left for the scale and below for its foot.
WIDTH, HEIGHT, LEFT, FOOT = 360, 150, 28, 8
#: Between two lines of the grid, in dB.
STEP = 20


@dataclass(frozen=True)
class Mark:
    """One unit in the plot.

    Attributes:
        x, y: where its ratio as the net runs is.
        bar: the height of its share of the noise.
        title: what a reader sees over it.
        node: the number of its operator in the page's data; None for an input.
    """

    x: float
    y: float
    bar: float
    title: str
    node: int | None


def accuracy_section(report: Report) -> dict[str, Any] | None:
    """Return what the template draws; None if accuracy was not asked."""
    accuracy, units = report.accuracy, shaded_units(report)
    if accuracy is None:
        return None
    numbers = _numbers(report)
    worst = (units[unit.name] for unit in accuracy.worst[:WORST])
    return {
        "outputs": outputs_line(accuracy),
        "explanation": explanation(accuracy),
        "unmeasured": accuracy.unmeasured,
        "worst": [_worst(each, accuracy, numbers) for each in worst],
        **_plot(list(units.values()), numbers),
    }


def accuracy_data(report: Report) -> dict[str, Any]:
    """Return by unit what the page's script needs: its shades, and what it costs in words; empty if not asked."""
    units = {
        name: [each.by_noise, each.by_ratio, each.text]
        for name, each in shaded_units(report).items()
    }
    return {"units": units} if units else {}


def _numbers(report: Report) -> dict[str, int]:
    """Return the number of the main operator of each unit in the page's data."""
    found: dict[str, int] = {}
    for number, verdict in enumerate(report.verdicts):
        if verdict.unit and verdict.computes:
            known = found.setdefault(verdict.unit, number)
            if verdict.macs > report.verdicts[known].macs:
                found[verdict.unit] = number
    return found


def _worst(
    each: ShadedUnit, accuracy: Accuracy, numbers: dict[str, int]
) -> dict[str, Any]:
    unit = each.unit
    return {
        "name": each.name,
        "node": numbers.get(unit.name),
        "share": share_of_noise(unit, accuracy) or "-",
        "cumulative": decibels(unit.cumulative_db),
        "isolated": decibels(unit.isolated_db),
        "title": each.text,
    }


def _plot(units: list[ShadedUnit], numbers: dict[str, int]) -> dict[str, Any]:
    ratios = [
        ratio
        for each in units
        for ratio in (each.unit.cumulative_db, each.unit.isolated_db)
        if ratio < EXACT_DB
    ]
    top = STEP * (int(max([*ratios, STEP])) // STEP + 1)
    height, width = HEIGHT - FOOT, (WIDTH - LEFT) / max(1, len(units))

    def level(ratio: float) -> float:
        return round(height * (1 - min(max(ratio, 0.0), top) / top), 1)

    at = [round(LEFT + width * (index + 0.5), 1) for index in range(len(units))]
    marks = [
        Mark(
            x,
            level(each.unit.cumulative_db),
            round(height * each.share, 1),
            f"{each.name}: {each.text}",
            numbers.get(each.unit.name),
        )
        for x, each in zip(at, units, strict=True)
    ]
    isolated = [
        (x, level(u.unit.isolated_db))
        for x, u in zip(at, units, strict=True)
        if u.unit.isolated_db < EXACT_DB
    ]
    return {
        "marks": marks,
        "bar": round(max(1.0, 0.8 * width), 1),
        "base": height,
        "grid": [(level(ratio), ratio) for ratio in range(0, top + 1, STEP)],
        "cumulative": _points((mark.x, mark.y) for mark in marks),
        "isolated": _points(isolated),
    }


def _points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in places)
