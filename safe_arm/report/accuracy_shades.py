"""The shades of a report's units in drawings: by the noise they cause, and by their signal to noise."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from safe_arm.core.record import Report
from safe_arm.core.unit_accuracy import Accuracy, UnitAccuracy
from safe_arm.report.accuracy_text import described, noise_of_units, unit_name

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
