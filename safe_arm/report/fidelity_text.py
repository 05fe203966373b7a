"""How a program compares with the float net, and its delegates with the quantised graph, in words.

Terminal, page, notebook and ``safe-arm verify-pte`` say it with the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from safe_arm.core.float_comparison import FloatComparison, OutputFidelity
from safe_arm.core.record import EARLIER, Report, Verification
from safe_arm.core.unit_accuracy import EXACT_DB
from safe_arm.report.accuracy_text import decibels
from safe_arm.report.numbers import counted

EXACT = "exact"
WITHIN_ROUNDING = "within the rounding of float32"
#: How many outputs a text names.
OUTPUTS = 5
#: Units in the order in which a difference is named: no unit compares with another.
_ORDER = ("relative", "integers", "codes")


def fidelity_lines(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what is known of a program's results, each line with its name: float net, quantised graph, inputs tried."""
    yield from lines_beside_float(report)
    if report.verifications:
        yield "verified", verified_line(report.verifications)
        if tried := tried_line(report.verifications):
            yield "tried", tried


def lines_beside_float(report: Report) -> Iterator[tuple[str, str]]:
    """Yield how each method's outputs compare with the float net's; nothing where no record says so."""
    for comparison in report.float_comparisons:
        method = f"{comparison.method}: " if len(report.methods) > 1 else ""
        for number, line in enumerate(float_net_lines(comparison)):
            yield "" if number else "float net", line if number else f"{method}{line}"


def float_net_lines(comparison: FloatComparison) -> list[str]:
    """Return how the outputs compare with the float net's, a line an output; at most five, the worst ones."""
    shown = _worst_outputs(comparison.outputs)
    lines = [_output_line(each, comparison.samples) for each in shown]
    if rest := len(comparison.outputs) - len(shown):
        lines.append(f"{counted(rest, 'more output')}, none worse")
    if lines:
        lines[-1] += f", on {counted(comparison.samples, 'calibration sample')}"
    if comparison.note:
        lines.append(
            comparison.note
            if lines
            else f"not compared with the float net: {comparison.note}"
        )
    return lines


def _worst_outputs(outputs: Sequence[OutputFidelity]) -> list[OutputFidelity]:
    """Return all outputs in order if they are few, else the worst ones, of each kind at least one."""
    if len(outputs) <= OUTPUTS:
        return list(outputs)
    floats = sorted((each for each in outputs if each.agreement is None), key=_ratio)
    labels = sorted(
        (each for each in outputs if each.agreement is not None), key=_agreement
    )
    several_labels = labels[: max(1, OUTPUTS - len(floats))]
    return [*floats[: OUTPUTS - len(several_labels)], *several_labels]


def _ratio(output: OutputFidelity) -> float:
    return EXACT_DB if output.worst_sqnr is None else output.worst_sqnr


def _agreement(output: OutputFidelity) -> float:
    return 1.0 if output.worst_agreement is None else output.worst_agreement


def _output_line(output: OutputFidelity, samples: int) -> str:
    if output.agreement is not None:
        if output.agreement == 1:
            return f"{EXACT} at {output.name}"
        line = f"labels agree in {_share(output.agreement)} at {output.name}"
        worst = "" if output.worst_agreement is None else _share(output.worst_agreement)
    elif output.sqnr is not None:
        line = f"{decibels(output.sqnr)} at {output.name}"
        if output.sqnr >= EXACT_DB and _ratio(output) >= EXACT_DB:
            return line
        worst = "" if output.worst_sqnr is None else decibels(output.worst_sqnr)
    else:
        return f"{output.name} is not compared"
    if not worst or samples == 1:
        return line
    return f"{line}, worst sample {worst} (sample {output.worst_sample})"


def _share(agreement: float) -> str:
    """Return a percentage that reads 0 or 100 only where it is."""
    if agreement in (0, 1):
        return f"{100 * agreement:.0f} %"
    percent = min(max(100 * agreement, 0.1), 99.9)
    return f"{percent:.3g} %"


def verified_line(verifications: Sequence[Verification]) -> str:
    """Say how many delegates were verified, and how far the one that differs most is from the quantised graph."""
    good = [each for each in verifications if each.verified]
    line = f"{len(good)} of {counted(len(verifications), 'delegate')} against the quantised graph"
    if not good:
        return line
    worst = max(
        good,
        key=lambda each: (
            bool(each.apart_worst),
            _ORDER.index(each.apart_unit),
            each.apart_worst,
        ),
    )
    if not worst.apart_worst:
        return (
            f"{line}: {EXACT if all(each.exact for each in good) else WITHIN_ROUNDING}"
        )
    if len(good) == 1:
        return f"{line}: {apart(worst)}"
    alike = sum(not each.apart_worst for each in good)
    right = (
        EXACT
        if all(each.exact for each in good if not each.apart_worst)
        else WITHIN_ROUNDING
    )
    others = f"{alike} {right}, " if alike else ""
    return f"{line}: {others}{len(good) - alike} {apart(worst, worst.delegate)}"


def tried_line(verifications: Sequence[Verification]) -> str:
    """Say on how many sets of inputs the verified delegates were run and how long it took; empty if none was."""
    good = [each for each in verifications if each.verified]
    if not good:
        return ""
    seconds = sum(each.seconds for each in verifications)
    line = f"{sets([each.tried for each in good])} in the reference model ({seconds:.1f} s)"
    earlier = sum(each.note.endswith(EARLIER.removeprefix("verified")) for each in good)
    if earlier:
        line += f", {counted(earlier, 'delegate')} in an earlier run"
    return line


def sets(tried: Sequence[int]) -> str:
    """Return on how many sets of inputs delegates were run."""
    fewest, most = min(tried), max(tried)
    number = counted(fewest, "set") if fewest == most else f"{fewest} or more sets"
    return f"{number} of inputs{' each' * (len(tried) > 1)}"


def outcome(verification: Verification) -> str:
    """Say in a line how the verification of a delegate ended."""
    if not verification.verified:
        return verification.reason or "not verified"
    return f"{verification.note or 'verified'}: {apart(verification)} on {sets([verification.tried])}"


def apart(verification: Verification, delegate: str = "") -> str:
    """Say how far a verified delegate is from the quantised graph as a whole, and which operators cause it.

    Args:
        verification: the record of the delegate.
        delegate: its name, if that has to be said.
    """
    if not verification.apart_worst:
        return EXACT if verification.exact else WITHIN_ROUNDING
    each = (
        f", each at most {_codes(verification.worst)} off" if verification.worst else ""
    )
    place = f"at output {verification.apart_output}{f' of {delegate}' * bool(delegate)}"
    amount = f"{_amount(verification)} {place}, mean {verification.apart_mean:.2g}"
    return f"operator by operator{each}; {_causes(verification)} add up to {amount}"


def _causes(verification: Verification) -> str:
    causes = []
    if verification.ties:
        causes.append(f"ties of {', '.join(verification.ties)}")
    if verification.tolerated:
        causes.append(f"tolerances of {', '.join(verification.tolerated)}")
    return " and ".join(causes) or "roundings"


def _amount(verification: Verification) -> str:
    if verification.apart_unit == "codes":
        return _codes(verification.apart_worst)
    if verification.apart_unit == "integers":
        return f"a difference of {verification.apart_worst:.0f}"
    return f"{verification.apart_worst:.2g} of the largest value"


def _codes(number: float) -> str:
    return counted(round(number), "code")
