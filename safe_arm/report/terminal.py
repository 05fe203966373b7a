"""The report as text: one screen of whole words on a terminal, plain lines with every operator elsewhere."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_arm.core.record import EARLIER, NodeVerdict, Report
from safe_arm.report.accuracy_text import accuracy_lines
from safe_arm.report.causes import Cause, causes
from safe_arm.report.fidelity_text import fidelity_lines, lines_beside_float, outcome
from safe_arm.report.footprint_lines import footprint_lines
from safe_arm.report.numbers import counted
from safe_arm.report.recommendation import recommendation

#: Lines of a terminal that everything but the reasons takes, about.
TAKEN = 12
#: How many operators of a reason a terminal names.
NAMED = 3


def print_report(report: Report, console: Console) -> None:
    """Print how the program compares with the float net, what was delegated, what was not and why.

    Args:
        report: the record of one export.
        console: where to; what a screen takes if it is a terminal, else lines that are never wrapped.
    """
    parts = (
        fidelity_lines,
        _remarks,
        _totals,
        _methods,
        _left_float,
        _engines,
        accuracy_lines,
        footprint_lines,
    )
    _print_lines((line for part in parts for line in part(report)), console)
    _print_causes(report, console)
    if hint := _hint(report):
        console.print(Text(hint), soft_wrap=not console.is_terminal)


def print_side_by_side(reports: Mapping[str, Report], console: Console) -> None:
    """Print the totals of several policies beside each other.

    Args:
        reports: by policy, the record of one dry run.
        console: where to.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    columns = [dict(_compared(report)) for report in reports.values()]
    table.add_column(min_width=14)
    for name in reports:
        table.add_column(Text(name), no_wrap=True, min_width=12)
    for row in dict.fromkeys(name for column in columns for name in column):
        table.add_row(row, *(Text(column.get(row, "-")) for column in columns))
    console.print(table)


def print_details(report: Report, console: Console) -> None:
    """Print what is in each delegate, how its verification ended, and what was refused or demoted and why.

    Args:
        report: the record of one dry run.
        console: where to; what a screen takes if it is a terminal, else lines that are never wrapped.
    """
    parts = (
        lines_beside_float,
        _methods,
        _left_float,
        accuracy_lines,
        _each,
        footprint_lines,
    )
    _print_lines((line for part in parts for line in part(report)), console)
    _print_causes(report, console)


def print_recommendation(
    reports: Mapping[str, Report], policy: str, console: Console
) -> None:
    """Print what to do, as what each policy came to suggests.

    Args:
        reports: by policy, the record of one dry run.
        policy: the one asked for.
        console: where to.
    """
    _print_lines([("recommended", recommendation(reports, policy))], console)


def _print_causes(report: Report, console: Console) -> None:
    found = causes(report)
    if not console.is_terminal:
        for cause in found:
            lines = (
                f"  {name}: {value}" for name, value in _facts(cause) if name != "at"
            )
            console.print(
                Text("\n".join((*lines, *_rows(cause.verdicts, report)))),
                soft_wrap=True,
            )
        return
    shown = _fitting(
        [_paragraph(cause, report, console.width) for cause in found], console.height
    )
    for paragraph in shown:
        console.print()
        console.print(paragraph, soft_wrap=True)
    if found:
        console.print()
    if rest := found[len(shown) :]:
        operators = counted(sum(len(cause.verdicts) for cause in rest), "operator")
        reasons = counted(len(rest), "more reason")
        console.print(
            Text(
                f"and {reasons} for {operators}; a report file has all of them, such as --report FILE.html"
            )
        )


def _fitting(paragraphs: list[Text], height: int) -> list[Text]:
    """Return the first paragraphs, as many as fit on one screen, but one at least."""
    ends = accumulate(paragraph.plain.count("\n") + 2 for paragraph in paragraphs)
    return paragraphs[: max(1, sum(TAKEN + end <= height for end in ends))]


def _paragraph(cause: Cause, report: Report, width: int) -> Text:
    """Return a reason for a terminal: the operators it keeps off, and under them what is to be said about it."""
    named = Counter(_named(verdict, report) for verdict in cause.verdicts)
    listed = [
        f"{name} x{number}" if number > 1 else name for name, number in named.items()
    ]
    rest = sum(list(named.values())[NAMED:])
    heading = _wrapped(
        "",
        f"{', '.join(listed[:NAMED])}{f' and {rest} more' if rest else ''}",
        0,
        width,
    )
    lines = []
    for name, value in _facts(cause):
        lines += _wrapped(
            f"  {name}",
            _cropped(value, width - 12) if name == "at" else value,
            12,
            width,
        )
    return Text.assemble(("\n".join(heading), "bold"), "\n", "\n".join(lines))


def _wrapped(name: str, value: str, indent: int, width: int) -> list[str]:
    """Return a name with a text beside it in lines of whole words."""
    return textwrap.wrap(
        value,
        width,
        initial_indent=f"{name:{indent}}",
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _cropped(code: str, width: int) -> str:
    """Return code in which what is too long for a line, and has no space to break it at, ends in an ellipsis."""
    return re.sub(rf"(\S{{{width - 1}}})\S\S+", "\\1\N{HORIZONTAL ELLIPSIS}", code)


def _facts(cause: Cause) -> Iterator[tuple[str, str]]:
    """Yield what is said about a reason, each with its name."""
    yield cause.verdict, _why(cause.text, cause.issue)
    if engines := dict.fromkeys(
        verdict.elsewhere for verdict in cause.verdicts if verdict.elsewhere
    ):
        yield "runs on", ", ".join(engines)
    yield "costs", cause.cost
    yield "to do", cause.advice
    if source := next(
        (verdict.source for verdict in cause.verdicts if verdict.source), ""
    ):
        yield "at", source


def _named(verdict: NodeVerdict, report: Report) -> str:
    return (
        verdict.as_written
        if len(report.methods) == 1
        else f"{verdict.method}: {verdict.as_written}"
    )


def _print_lines(lines: Iterable[tuple[str, str]], console: Console) -> None:
    """Print names with what is said of each beside it; on a terminal words are kept whole, elsewhere lines are."""
    for name, value in lines:
        parts = (
            _wrapped(name, value, 16, console.width)
            if console.is_terminal
            else [f"{name:16}{value}"]
        )
        console.print(Text("\n".join(parts)), soft_wrap=True)


def _methods(report: Report) -> Iterator[tuple[str, str]]:
    """Say how much of each method is delegated, if there are several."""
    for name, own in report.by_method.items():
        kept, share = (
            len(own.compute) - len(own.fallbacks),
            f"{100 * own.macs_delegated:.1f} % of its MACs",
        )
        yield (
            "method",
            f"{name}: {kept} of {len(own.compute)} operators delegated, {share}",
        )


def _left_float(report: Report) -> Iterator[tuple[str, str]]:
    """Say what the quantiser left float because quantising it failed, by reason."""
    reasons = Counter(verdict.left_float for verdict in report.left_float)
    for reason, number in reasons.most_common(3):
        yield "left float", f"{counted(number, 'operator')}: {reason}"


def _engines(report: Report) -> Iterator[tuple[str, str]]:
    """Say how many operators each engine runs, and how fast what was timed is beside the portable kernels."""
    many = Counter(verdict.engine for verdict in report.compute if verdict.engine)
    timed = {
        e.engine: [d for d in report.engines if d.engine == e.engine and d.microseconds]
        for e in report.engines
    }
    for engine, number in many.items():
        cost = ""
        if delegates := timed.get(engine):
            own = sum(each.microseconds or 0 for each in delegates)
            portable = sum(each.portable_microseconds or 0 for each in delegates)
            cost = (
                f", {own:.0f} us on this CPU, {portable:.0f} us on the portable kernels"
            )
        yield "engine", f"{engine}: {counted(number, 'operator')}{cost}"


def _remarks(report: Report) -> Iterator[tuple[str, str]]:
    """Say why delegates were not verified, and what else is to be said of a verification."""
    for each in report.verifications:
        if each.verified and each.note == EARLIER:
            continue
        if remark := each.reason or each.note:
            yield each.delegate, remark


def _each(report: Report) -> Iterator[tuple[str, str]]:
    """Say of every delegate what is in it, and how its verification ended."""
    verified = {each.delegate: each for each in report.verifications}
    for tag in report.delegates:
        ops = Counter(v.op for v in report.compute if v.delegate == tag)
        listed = ", ".join(
            f"{op} x{number}" if number > 1 else op for op, number in ops.items()
        )
        total = sum(v.macs for v in report.verdicts if v.delegate == tag)
        yield (
            tag,
            f"{counted(ops.total(), 'operator')}, {counted(total, 'MAC')}{f': {listed}' if listed else ''}",
        )
        if tag not in verified:
            yield "", "not verified: left out by --no-verify"
        elif verified[tag].verified:
            yield "", f"{outcome(verified[tag])} ({verified[tag].seconds:.1f} s)"
        else:
            yield "", outcome(verified[tag])


def _totals(report: Report) -> tuple[tuple[str, str], ...]:
    kept, all_of = len(report.compute) - len(report.fallbacks), len(report.compute)
    return (
        ("delegates", str(len(report.delegates))),
        ("operators", f"{kept} of {all_of} delegated"),
        ("MACs", f"{100 * report.macs_delegated:.1f} % delegated"),
        ("not delegated", counted(len(report.fallbacks), "operator")),
    )


def _compared(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what two policies are compared by."""
    kept = len(report.compute) - len(report.fallbacks)
    yield "delegates", str(len(report.delegates))
    yield "operators", f"{kept} of {len(report.compute)}"
    yield "MACs", f"{100 * report.macs_delegated:.1f} %"
    yield "refused", str(len(report.fallbacks) - len(report.demoted))
    yield "demoted", str(len(report.demoted))
    if report.verifications:
        yield (
            "verified",
            f"{sum(each.verified for each in report.verifications)} of {len(report.delegates)}",
        )
    if report.cycles:
        yield "Vela cycles", f"{sum(report.cycles.values()):,}"


def _why(reason: str, issue: str) -> str:
    return f"{reason} [{issue}]" if issue else reason


def _rows(verdicts: Sequence[NodeVerdict], report: Report) -> list[str]:
    """Return a line for each operator: its name, what it is as it was written, and where."""
    columns = [(report.label(v), v.as_written) for v in verdicts]
    names, ops = (max(map(len, column)) for column in zip(*columns, strict=True))
    rows = zip(columns, verdicts, strict=True)
    return [
        f"    {name:{names}}  {op:{ops}}  {v.source}".rstrip() for (name, op), v in rows
    ]


def _hint(report: Report) -> str:
    if not report.propagate_would_keep:
        return ""
    refused = counted(report.islands_refused, "refused island")
    return f"`--non-fuseable propagate` would delegate {report.propagate_would_keep} of the {refused}"
