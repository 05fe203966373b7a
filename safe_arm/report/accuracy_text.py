"""The accuracy of the quantised net in words: the outputs, their explanation by the units, and the worst units."""

from __future__ import annotations

from safe_arm.core.names import shown
from safe_arm.core.record import Report
from safe_arm.core.unit_accuracy import EXACT_DB, Accuracy, UnitAccuracy
from safe_arm.report.numbers import counted
from safe_arm.report.wrapped_text import Lines

#: Maximum number of units that a text names.
WORST = 5
#: The units' own errors explain the noise at the outputs if their sum is within this factor of it.
FACTOR = 2.0


def accuracy_lines(report: Report) -> Lines:
    """Yield the lines about accuracy, each with its name; none if it was not asked."""
    accuracy = report.accuracy
    if accuracy is None:
        return
    samples = counted(accuracy.samples, "sample")
    line = f"{outputs_line(accuracy)}, on {samples} ({accuracy.seconds:.1f} s)"
    yield "accuracy", line
    yield "", explanation(accuracy)
    if accuracy.unmeasured:
        units = counted(accuracy.unmeasured, "unit")
        yield "", f"{units} without a counterpart in the float model, not measured"
    name = "worst units"
    for unit in accuracy.worst[:WORST]:
        yield name, f"{unit_name(unit, report)}: {described(unit, accuracy)}"
        name = ""


def explanation(accuracy: Accuracy) -> str:
    """Return whether the errors of the units alone add up to the noise that is measured at the outputs."""
    factor = accuracy.explained
    if factor is None:
        return "how much of the noise each unit causes is not known: there is none, or no gradient leads to the units"
    if 1 / FACTOR <= factor <= FACTOR:
        return f"the units' own errors explain the noise: they add up to {factor:.2f} of it"
    why = "they partly cancel" if factor > 1 else "they add up, or something saturates"
    return f"the units' own errors do not explain the noise: they add up to {factor:.2g} of it ({why} along the net)"


def unit_name(unit: UnitAccuracy, report: Report) -> str:
    """Return a unit's name for a user: its layer as written, or an input's name."""
    if not unit.op:
        return f"input {unit.name}"
    members = [verdict for verdict in report.compute if verdict.unit == unit.name]
    name = shown(unit.op, "", unit.module)
    if members:
        name = max(members, key=lambda verdict: verdict.macs).as_written
    return f"{name} [{unit.name}]"


def described(unit: UnitAccuracy, accuracy: Accuracy) -> str:
    """Return a unit's accuracy in a line."""
    facts = []
    share = share_of_noise(unit, accuracy)
    if share:
        facts.append(f"{share} of the noise")
    facts.append(f"{decibels(unit.cumulative_db)} as the net runs")
    facts.append(f"{decibels(unit.isolated_db)} alone")
    if unit.worst_channel_db is not None:
        facts.append(f"channel {unit.worst_channel} {decibels(unit.worst_channel_db)}")
    if unit.saturated:
        facts.append(f"{100 * unit.saturated:.2g} % saturated")
    return f"{', '.join(facts)}, {100 * unit.used:.0f} % of the range used"


def share_of_noise(unit: UnitAccuracy, accuracy: Accuracy) -> str:
    """Return a unit's share of the noise that all units cause; empty if that is not known."""
    total = noise_of_units(accuracy)
    if not unit.output_noise or not total:
        return ""
    return f"{100 * unit.output_noise / total:.0f} %"


def noise_of_units(accuracy: Accuracy) -> float:
    """Return the sum of the noise that each unit alone causes at the outputs."""
    return sum(unit.output_noise or 0.0 for unit in accuracy.units)


def decibels(ratio: float) -> str:
    """Return a ratio with its unit; one at either limit in words."""
    if ratio >= EXACT_DB:
        return "exact"
    return "no signal" if ratio <= -EXACT_DB else f"{ratio:.1f} dB"


def outputs_line(accuracy: Accuracy) -> str:
    """Return the accuracy of the outputs, the worst of several first, and of the worst sample."""
    ratios = [decibels(ratio) for ratio in accuracy.outputs_db]
    if not ratios:
        return "no output is float"
    line = f"{ratios[0]} at the output"
    if len(ratios) > 1:
        worst_output = decibels(min(accuracy.outputs_db))
        listed = ", ".join([*ratios[:WORST], "..."][: len(ratios)])
        line = f"{worst_output} at the worst of {len(ratios)} outputs ({listed})"
    worst = accuracy.worst_sample_db
    if worst is None or worst >= EXACT_DB or accuracy.samples == 1:
        return line
    return f"{line}, worst sample {decibels(worst)} (sample {accuracy.worst_sample})"
