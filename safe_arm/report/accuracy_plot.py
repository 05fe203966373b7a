"""The section about accuracy on the page: the plot along the net, the worst units, and the shades of all."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from safe_arm.core.record import Report
from safe_arm.core.unit_accuracy import EXACT_DB, UnitAccuracy
from safe_arm.report.accuracy_text import (
    WORST,
    described,
    explanation,
    noise_of_units,
    outputs_line,
    unit_name,
)

#: Distance between two lines of the plot's grid, in dB.
STEP = 20
#: Share of the noise of all units at which each shade begins; the lightest begins at 0.
SHARES = (0.01, 0.05, 0.15, 0.3)
#: Ratio in dB below which each shade begins; the lightest is above the first.
RATIOS = (40.0, 30.0, 20.0, 10.0)


@dataclass(frozen=True)
class ShadedUnit:
    """The appearance of a unit in a drawing.

    Attributes:
        by_noise: its shade, 0 to 4, by its share of the noise; by its isolated ratio where no gradient tells.
        by_ratio: its shade by the ratio as the net runs.
        name, text: its name for a reader, and its accuracy in words.
        share: its share of the noise that all units cause, 0 to 1.
        unit: the measurement.
        place: its number in graph order.
    """

    by_noise: int
    by_ratio: int
    name: str
    text: str
    share: float
    unit: UnitAccuracy
    place: int


def shaded_units(report: Report) -> dict[str, ShadedUnit]:
    """Return the units by name, in graph order; none if accuracy was not asked."""
    accuracy = report.accuracy
    if accuracy is None:
        return {}
    total = noise_of_units(accuracy)
    units = {}
    for place, unit in enumerate(accuracy.units):
        share = 0.0
        by_noise = _by_ratio(unit.isolated_db)
        if total:
            share = (unit.output_noise or 0.0) / total
            by_noise = bisect_right(SHARES, share)
        by_ratio = _by_ratio(unit.cumulative_db)
        name = unit_name(unit, report)
        text = described(unit, accuracy)
        units[unit.name] = ShadedUnit(
            by_noise, by_ratio, name, text, share, unit, place
        )
    return units


def _by_ratio(ratio: float) -> int:
    return sum(ratio < least for least in RATIOS)


def accuracy_section(report: Report) -> dict[str, Any] | None:
    """Return the values of the template; None if accuracy was not asked."""
    accuracy = report.accuracy
    units = shaded_units(report)
    if accuracy is None:
        return None
    ratios = [float(STEP)]
    for unit in accuracy.units:
        ratios += [unit.cumulative_db, unit.isolated_db]
    highest = max(ratio for ratio in ratios if ratio < EXACT_DB)
    return {
        "outputs": outputs_line(accuracy),
        "explanation": explanation(accuracy),
        "unmeasured": accuracy.unmeasured,
        "units": list(units.values()),
        "worst": [units[unit.name] for unit in accuracy.worst[:WORST]],
        "nodes": _numbers(report),
        "step": STEP,
        "top": STEP * (int(highest) // STEP + 1),
        "exact": EXACT_DB,
    }


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
