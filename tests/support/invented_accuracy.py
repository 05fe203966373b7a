"""Accuracy invented for a report: every operator a unit of its own, of every quality there is."""

from collections.abc import Sequence
from dataclasses import replace

from safe_arm.core.record import NodeVerdict
from safe_arm.core.unit_accuracy import EXACT_DB, Accuracy, UnitAccuracy

#: By turns: as the net runs and alone in dB, and the noise caused at the outputs, at each turn a tenth of the last.
QUALITIES = (
    (45.0, EXACT_DB, 0.0),
    (35.0, 47.0, 1e-5),
    (25.0, 30.0, 3e-5),
    (15.0, 20.0, 1e-4),
    (5.0, 8.0, 3e-4),
    (-EXACT_DB, 0.0, None),
)


def measured(verdicts: Sequence[NodeVerdict]) -> tuple[Accuracy, tuple[NodeVerdict, ...]]:
    """Return accuracy about operators, an input before them, and the operators with the names of their units."""
    tagged = tuple(replace(each, unit=f"u_{each.name}") if each.computes else each for each in verdicts)
    units = [UnitAccuracy("x", "", "", 41.0, 41.0, 0.0, 1.0, output_noise=1e-6)]
    for index, each in enumerate(v for v in tagged if v.unit):
        turn, quality = divmod(index, len(QUALITIES))
        whole, alone, noise = QUALITIES[quality]
        noise = None if noise is None else noise * 10.0**-turn
        units.append(UnitAccuracy(each.unit, each.module, each.op, whole, alone, 0.01, 0.8, 3, alone, noise))
    total = sum(unit.output_noise or 0.0 for unit in units)
    return Accuracy(tuple(units), (33.0,), 8, 1.0, 0.9 * total), tagged
