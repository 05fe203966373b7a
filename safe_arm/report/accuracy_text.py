"""How good the quantised net is, in words: the outputs, whether the units explain them, and the worst units."""

from __future__ import annotations

from collections.abc import Iterator

from safe_arm.core.names import shown
from safe_arm.core.record import Report
from safe_arm.core.unit_accuracy import EXACT_DB, Accuracy, UnitAccuracy
from safe_arm.report.numbers import counted

#: How many units a text names.
WORST = 5
#: The units' own errors explain the noise at the outputs if their sum is within this factor of it.
FACTOR = 2.0


def accuracy_lines(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the lines about accuracy, each with its name; none if it was not asked."""
    accuracy = report.accuracy
    if accuracy is None:
        return
    yield (
        "accuracy",
        f"{outputs_line(accuracy)}, on {counted(accuracy.samples, 'sample')} ({accuracy.seconds:.1f} s)",
    )
    yield "", explanation(accuracy)
    if accuracy.unmeasured:
        yield (
            "",
            f"{counted(accuracy.unmeasured, 'unit')} without a counterpart in the float model, not measured",
        )
    for number, unit in enumerate(accuracy.worst[:WORST]):
        yield (
            "" if number else "worst units",
            f"{unit_name(unit, report)}: {described(unit, accuracy)}",
        )


def explanation(accuracy: Accuracy) -> str:
    """Say whether the errors of the units alone add up to what is measured at the outputs."""
    factor = accuracy.explained
    if factor is None:
        return "how much of the noise each unit causes is not known: there is none, or no gradient leads to the units"
    if 1 / FACTOR <= factor <= FACTOR:
        return f"the units' own errors explain the noise: they add up to {factor:.2f} of it"
    why = "they partly cancel" if factor > 1 else "they add up, or something saturates"
    return f"the units' own errors do not explain the noise: they add up to {factor:.2g} of it ({why} along the net)"


def unit_name(unit: UnitAccuracy, report: Report) -> str:
    """Return what a user calls a unit: its layer as written, or an input by its name."""
    if not unit.op:
        return f"input {unit.name}"
    members = [verdict for verdict in report.compute if verdict.unit == unit.name]
    main = max(members, key=lambda verdict: verdict.macs, default=None)
    return (
        f"{main.as_written if main else shown(unit.op, '', unit.module)} [{unit.name}]"
    )


def described(unit: UnitAccuracy, accuracy: Accuracy) -> str:
    """Say in a line what a unit costs."""
    facts = [
        f"{decibels(unit.cumulative_db)} as the net runs",
        f"{decibels(unit.isolated_db)} alone",
    ]
    if share := share_of_noise(unit, accuracy):
        facts.insert(0, f"{share} of the noise")
    if unit.worst_channel_db is not None:
        facts.append(f"channel {unit.worst_channel} {decibels(unit.worst_channel_db)}")
    if unit.saturated:
        facts.append(f"{100 * unit.saturated:.2g} % saturated")
    return f"{', '.join(facts)}, {100 * unit.used:.0f} % of the range used"


def share_of_noise(unit: UnitAccuracy, accuracy: Accuracy) -> str:
    """Return which share of the noise that the units cause is a unit's; empty if that is not known."""
    total = sum(each.output_noise or 0.0 for each in accuracy.units)
    return (
        f"{100 * unit.output_noise / total:.0f} %"
        if unit.output_noise and total
        else ""
    )


def decibels(ratio: float) -> str:
    """Return a ratio with its unit; one that is cut off as what it stands for."""
    return (
        "exact"
        if ratio >= EXACT_DB
        else "no signal"
        if ratio <= -EXACT_DB
        else f"{ratio:.1f} dB"
    )


def outputs_line(accuracy: Accuracy) -> str:
    """Say how good the outputs are, the worst of several first, and the worst sample."""
    ratios = [decibels(ratio) for ratio in accuracy.outputs_db]
    if not ratios:
        return "no output is float"
    if len(ratios) == 1:
        line = f"{ratios[0]} at the output"
    else:
        shown_ratios = (
            f"{', '.join(ratios[:WORST])}{', ...' if len(ratios) > WORST else ''}"
        )
        line = f"{decibels(min(accuracy.outputs_db))} at the worst of {len(ratios)} outputs ({shown_ratios})"
    worst = accuracy.worst_sample_db
    if worst is None or worst >= EXACT_DB or accuracy.samples == 1:
        return line
    return f"{line}, worst sample {decibels(worst)} (sample {accuracy.worst_sample})"
