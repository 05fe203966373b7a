"""The section about accuracy on the page: the plot along the net, the worst units, and the shades of all."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from safe_arm.core.record import Report
from safe_arm.core.unit_accuracy import EXACT_DB, Accuracy, UnitAccuracy
from safe_arm.report.accuracy_text import (
    WORST,
    decibels,
    described,
    explanation,
    noise_of_units,
    outputs_line,
    share_of_noise,
    unit_name,
)

#: The drawing's size, and its margins on the left for the scale and below for its foot.
WIDTH = 360
HEIGHT = 150
LEFT = 28
FOOT = 8
#: Distance between two lines of the grid, in dB.
STEP = 20


#: Share of the noise of all units at which each shade begins; the lightest begins at 0.
SHARES = (0.01, 0.05, 0.15, 0.3)
#: Ratio in dB below which each shade begins; the lightest is above the first.
RATIOS = (40.0, 30.0, 20.0, 10.0)


@dataclass(frozen=True)
class Mark:
    """One unit in the plot.

    Attributes:
        x, y: the place of its ratio as the net runs.
        bar: the height of its share of the noise.
        title: the text that appears over it.
        node: the number of its operator in the page's data; None for an input.
    """

    x: float
    y: float
    bar: float
    title: str
    node: int | None


@dataclass(frozen=True)
class ShadedUnit:
    """The appearance of a unit in a drawing.

    Attributes:
        by_noise: its shade, 0 to 4, by its share of the noise; by its isolated ratio where no gradient tells.
        by_ratio: its shade by the ratio as the net runs.
        name, text: its name for a reader, and its accuracy in words.
        share: its share of the noise that all units cause, 0 to 1.
        unit: the measurement.
    """

    by_noise: int
    by_ratio: int
    name: str
    text: str
    share: float
    unit: UnitAccuracy


def shaded_units(report: Report) -> dict[str, ShadedUnit]:
    """Return the units by name, in graph order; none if accuracy was not asked."""
    accuracy = report.accuracy
    if accuracy is None:
        return {}
    return {unit.name: _shaded(unit, accuracy, report) for unit in accuracy.units}


def _shaded(unit: UnitAccuracy, accuracy: Accuracy, report: Report) -> ShadedUnit:
    total = noise_of_units(accuracy)
    share = 0.0
    by_noise = _by_ratio(unit.isolated_db)
    if total:
        share = (unit.output_noise or 0.0) / total
        by_noise = bisect_right(SHARES, share)
    name = unit_name(unit, report)
    text = described(unit, accuracy)
    return ShadedUnit(by_noise, _by_ratio(unit.cumulative_db), name, text, share, unit)


def _by_ratio(ratio: float) -> int:
    return sum(ratio < least for least in RATIOS)


def accuracy_section(report: Report) -> dict[str, Any] | None:
    """Return the values of the template; None if accuracy was not asked."""
    accuracy = report.accuracy
    units = shaded_units(report)
    if accuracy is None:
        return None
    numbers = _numbers(report)
    worst = []
    for unit in accuracy.worst[:WORST]:
        worst.append(_worst(units[unit.name], accuracy, numbers))
    section = {
        "outputs": outputs_line(accuracy),
        "explanation": explanation(accuracy),
        "unmeasured": accuracy.unmeasured,
        "worst": worst,
    }
    return section | _plot(list(units.values()), numbers)


def accuracy_data(report: Report) -> dict[str, Any]:
    """Return the shades and the text of each unit, for the page's script; empty if accuracy was not asked."""
    units = {}
    for name, unit in shaded_units(report).items():
        units[name] = [unit.by_noise, unit.by_ratio, unit.text]
    return {"units": units} if units else {}


def _numbers(report: Report) -> dict[str, int]:
    """Return the number of the main operator of each unit in the page's data."""
    numbers: dict[str, int] = {}
    for number, verdict in enumerate(report.verdicts):
        if verdict.unit and verdict.computes:
            main = numbers.setdefault(verdict.unit, number)
            if verdict.macs > report.verdicts[main].macs:
                numbers[verdict.unit] = number
    return numbers


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
    ratios = [float(STEP)]
    for shaded in units:
        ratios += [shaded.unit.cumulative_db, shaded.unit.isolated_db]
    highest = max(ratio for ratio in ratios if ratio < EXACT_DB)
    top = STEP * (int(highest) // STEP + 1)
    height = HEIGHT - FOOT
    width = (WIDTH - LEFT) / max(1, len(units))

    def level(ratio: float) -> float:
        return round(height * (1 - min(max(ratio, 0.0), top) / top), 1)

    marks, cumulative, isolated = [], [], []
    for index, shaded in enumerate(units):
        unit = shaded.unit
        x = round(LEFT + width * (index + 0.5), 1)
        y = level(unit.cumulative_db)
        title = f"{shaded.name}: {shaded.text}"
        node = numbers.get(unit.name)
        marks.append(Mark(x, y, round(height * shaded.share, 1), title, node))
        cumulative.append(f"{x},{y}")
        if unit.isolated_db < EXACT_DB:
            isolated.append(f"{x},{level(unit.isolated_db)}")
    return {
        "marks": marks,
        "bar": round(max(1.0, 0.8 * width), 1),
        "base": height,
        "grid": [(level(ratio), ratio) for ratio in range(0, top + 1, STEP)],
        "cumulative": " ".join(cumulative),
        "isolated": " ".join(isolated),
    }
