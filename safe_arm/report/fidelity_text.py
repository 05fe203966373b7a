"""The comparison of a program with the float net, and of its delegates with the quantised graph, in words.

Terminal, page, notebook and ``safe-arm verify-pte`` use the same words.
"""

from __future__ import annotations

from collections.abc import Sequence

from safe_arm.core.float_comparison import FloatComparison, OutputFidelity
from safe_arm.core.record import EARLIER, Report, Verification
from safe_arm.core.unit_accuracy import EXACT_DB
from safe_arm.report.accuracy_text import decibels
from safe_arm.report.numbers import counted
from safe_arm.report.wrapped_text import Lines

EXACT = "exact"
WITHIN_ROUNDING = "within the rounding of floats"
#: Maximum number of outputs that a text names.
OUTPUTS = 5
#: Units of a difference, which do not compare with each other; a difference in the last is named before others.
_ORDER = ("relative", "integers", "codes")


def fidelity_lines(report: Report) -> Lines:
    """Yield the lines about a program's results, each with its name: float net, quantised graph, inputs tried."""
    yield from lines_beside_float(report)
    if report.verifications:
        yield "verified", verified_line(report.verifications)
        tried = tried_line(report.verifications)
        if tried:
            yield "tried", tried


def lines_beside_float(report: Report) -> Lines:
    """Yield the comparison of each method's outputs with the float net's, if the report has one."""
    for comparison in report.float_comparisons:
        method = report.method_prefix(comparison.method)
        name = "float net"
        for line in float_net_lines(comparison):
            yield name, method + line
            name = method = ""


def float_net_lines(comparison: FloatComparison) -> list[str]:
    """Return the comparison of the outputs with the float net's, a line an output; at most five, the worst ones."""
    shown = _worst_outputs(comparison.outputs)
    lines = [_output_line(each, comparison.samples) for each in shown]
    rest = len(comparison.outputs) - len(shown)
    if rest:
        lines.append(f"{counted(rest, 'more output')}, none worse")
    note = comparison.note
    if lines:
        lines[-1] += f", on {_samples(comparison)}"
    elif note:
        note = f"not compared with the float net: {note}"
    if note:
        lines.append(note)
    return lines


def _samples(comparison: FloatComparison) -> str:
    """Return how many samples were compared, and of how many if some were not."""
    if comparison.shown <= comparison.samples:
        return counted(comparison.samples, "calibration sample")
    all_of_them = counted(comparison.shown, "calibration sample")
    return f"the first {comparison.samples} of {all_of_them}"


def _worst_outputs(outputs: Sequence[OutputFidelity]) -> list[OutputFidelity]:
    """Return all outputs in order if they are few, else the worst ones, of each kind at least one."""
    if len(outputs) <= OUTPUTS:
        return list(outputs)
    floats = [output for output in outputs if output.agreement is None]
    labels = [output for output in outputs if output.agreement is not None]
    worst_labels = sorted(labels, key=_agreement)[: max(1, OUTPUTS - len(floats))]
    worst_floats = sorted(floats, key=_ratio)[: OUTPUTS - len(worst_labels)]
    return worst_floats + worst_labels


def _ratio(output: OutputFidelity) -> float:
    return EXACT_DB if output.worst_sqnr is None else output.worst_sqnr


def _agreement(output: OutputFidelity) -> float:
    return 1.0 if output.worst_agreement is None else output.worst_agreement


def _output_line(output: OutputFidelity, samples: int) -> str:
    worst = ""
    if output.agreement is not None:
        if output.agreement == 1:
            return f"{EXACT} at {output.name}"
        line = f"labels agree in {_share(output.agreement)} at {output.name}"
        if output.worst_agreement is not None:
            worst = _share(output.worst_agreement)
    elif output.sqnr is not None:
        line = f"{decibels(output.sqnr)} at {output.name}"
        if output.sqnr >= EXACT_DB and _ratio(output) >= EXACT_DB:
            return line
        if output.worst_sqnr is not None:
            worst = decibels(output.worst_sqnr)
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
    """Return how many delegates were verified, and how far the one that differs most is from what was lowered."""
    good = [each for each in verifications if each.verified]
    line = f"{len(good)} of {counted(len(verifications), 'delegate')}"
    if not good:
        return line
    # Delegates of floats alone may be of a program that nobody has quantised.
    floats = all(each.apart_unit == "relative" for each in good)
    line += f" against the {'exported program' if floats else 'quantised graph'}"
    worst = good[0]
    right = EXACT
    alike = 0
    for each in good:
        worst = max(worst, each, key=_size_of_difference)
        if not each.apart_worst:
            alike += 1
            if not each.exact:
                right = WITHIN_ROUNDING
    if alike == len(good):
        return f"{line}: {right}"
    if len(good) == 1:
        return f"{line}: {apart(worst)}"
    others = f"{alike} {right}, " if alike else ""
    return f"{line}: {others}{len(good) - alike} {apart(worst, worst.delegate)}"


def _size_of_difference(verification: Verification) -> tuple[bool, int, float]:
    size = verification.apart_worst
    return bool(size), _ORDER.index(verification.apart_unit), size


def tried_line(verifications: Sequence[Verification]) -> str:
    """Return on how many sets of inputs the verified delegates were run and how long it took; empty if none was."""
    good = [each for each in verifications if each.verified]
    if not good:
        return ""
    seconds = sum(each.seconds for each in verifications)
    tried = sets([each.tried for each in good])
    line = f"{tried} in the reference model ({seconds:.1f} s)"
    in_earlier_run = EARLIER.removeprefix("verified")
    earlier = sum(each.note.endswith(in_earlier_run) for each in good)
    if earlier:
        line += f", {counted(earlier, 'delegate')} in an earlier run"
    return line


def sets(tried: Sequence[int]) -> str:
    """Return on how many sets of inputs delegates were run."""
    fewest = min(tried)
    most = max(tried)
    number = f"{fewest} or more sets"
    if fewest == most:
        number = counted(fewest, "set")
    return f"{number} of inputs each" if len(tried) > 1 else f"{number} of inputs"


def outcome(verification: Verification) -> str:
    """Return the result of the verification of a delegate in a line."""
    if not verification.verified:
        return verification.reason or "not verified"
    inputs = sets([verification.tried])
    return f"{verification.note or 'verified'}: {apart(verification)} on {inputs}"


def outcomes(report: Report) -> dict[str, str]:
    """Return the result of each verification in a line, by delegate."""
    return {each.delegate: outcome(each) for each in report.verifications}


def apart(verification: Verification, delegate: str = "") -> str:
    """Return how far a verified delegate is from the quantised graph as a whole, and which operators cause it.

    Args:
        verification: the record of the delegate.
        delegate: its name, if the text has to name it.
    """
    if not verification.apart_worst:
        return EXACT if verification.exact else WITHIN_ROUNDING
    line = "operator by operator"
    if verification.worst:
        line += f", each at most {_codes(verification.worst)} off"
    place = f"at output {verification.apart_output}"
    if delegate:
        place += f" of {delegate}"
    causes = []
    if verification.ties:
        causes.append(f"ties of {', '.join(verification.ties)}")
    if verification.tolerated:
        causes.append(f"tolerances of {', '.join(verification.tolerated)}")
    amount = f"{_amount(verification)} {place}, mean {verification.apart_mean:.2g}"
    return f"{line}; {' and '.join(causes) or 'roundings'} add up to {amount}"


def _amount(verification: Verification) -> str:
    if verification.apart_unit == "codes":
        return _codes(verification.apart_worst)
    if verification.apart_unit == "integers":
        return f"a difference of {verification.apart_worst:.0f}"
    return f"{verification.apart_worst:.2g} of the largest value"


def _codes(number: float) -> str:
    return counted(round(number), "code")
