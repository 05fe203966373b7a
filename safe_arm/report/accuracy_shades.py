"""The units of a report in shades, for what draws them: by the noise they cause, and by their signal to noise."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from safe_arm.core.record import Report
from safe_arm.core.unit_accuracy import Accuracy, UnitAccuracy
from safe_arm.report.accuracy_text import described, unit_name

#: From which share of the noise that all units cause a shade begins, the lightest at 0.
SHARES = (0.01, 0.05, 0.15, 0.3)
#: Below which ratio, in dB, a shade begins, the lightest above the first.
RATIOS = (40.0, 30.0, 20.0, 10.0)


@dataclass(frozen=True)
class ShadedUnit:
    """How a unit is drawn.

    Attributes:
        by_noise: its shade, 0 to 4, by its share of the noise; by its isolated ratio where no gradient tells.
        by_ratio: its shade by the ratio as the net runs.
        name, text: what a reader calls it, and what it costs in words.
        share: of the noise that all units cause, 0 to 1.
        unit: what was measured.
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
    return (
        {}
        if accuracy is None
        else {unit.name: _shaded(unit, accuracy, report) for unit in accuracy.units}
    )


def _shaded(unit: UnitAccuracy, accuracy: Accuracy, report: Report) -> ShadedUnit:
    total = sum(each.output_noise or 0.0 for each in accuracy.units)
    share = (unit.output_noise or 0.0) / total if total else 0.0
    by_noise = bisect_right(SHARES, share) if total else _by_ratio(unit.isolated_db)
    name, text = unit_name(unit, report), described(unit, accuracy)
    return ShadedUnit(by_noise, _by_ratio(unit.cumulative_db), name, text, share, unit)


def _by_ratio(ratio: float) -> int:
    return sum(ratio < least for least in RATIOS)
