"""The report as text: one screen on a terminal, plain lines with every operator in a file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_arm.core.plain_reasons import plain, plain_left_float
from safe_arm.core.record import EARLIER, NodeVerdict, Report
from safe_arm.report.accuracy_text import accuracy_lines
from safe_arm.report.causes import Cause, causes
from safe_arm.report.fidelity_text import fidelity_lines, lines_beside_float, outcome
from safe_arm.report.footprint_lines import border_text, footprint_lines
from safe_arm.report.numbers import counted, has_macs, share_of_macs
from safe_arm.report.recommendation import recommendation, would_propagate
from safe_arm.report.stock_column import (
    STOCK,
    StockResult,
    cells_beside_stock,
    figure_cells,
    stock_cells,
)
from safe_arm.report.table_text import print_table
from safe_arm.report.wrapped_text import Lines, wrapped

#: Approximate number of lines of a terminal that everything but the reasons takes.
TAKEN = 12
#: Maximum number of operators that a terminal names for one reason.
NAMED = 3


def print_report(report: Report, console: Console) -> None:
    """Print the comparison with the float net, the totals, and the reasons why operators are not delegated.

    Args:
        report: the record of one export.
        console: the output; a terminal gets one screen of broken lines, a file all lines unbroken.
    """
    for part in (fidelity_lines, _remarks, _totals, _islands, _methods, _left_float):
        _print_lines(part(report), console)
    for part in (accuracy_lines, footprint_lines):
        _print_lines(part(report), console)
    _print_causes(report, console)
    hint = would_propagate(report)
    if hint:
        hint = f"`--non-fuseable best` {hint}"
        console.print(Text(hint), soft_wrap=not console.is_terminal)


def print_side_by_side(
    reports: Mapping[str, Report], console: Console, stock: StockResult | None = None
) -> None:
    """Print the totals of several policies beside each other.

    Args:
        reports: the record of one dry run for each policy.
        console: the output.
        stock: the result of stock's export, for a column before the others; None for no such column.
    """
    columns: dict[str, dict[str, str]] = {}
    rows: dict[str, None] = {}
    if stock is not None:
        counts = any(map(has_macs, reports.values()))
        columns[STOCK] = dict(stock_cells(stock, has_macs=counts))
        rows = dict.fromkeys(("result", "largest error"))
    for name, report in reports.items():
        columns[name] = dict(figure_cells(report.totals, share_of_macs(report)))
        if stock is not None:
            columns[name] |= cells_beside_stock(report)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(min_width=14)
    for name, column in columns.items():
        table.add_column(Text(name), no_wrap=True, min_width=12)
        rows.update(dict.fromkeys(column))
    for row in rows:
        cells = [Text(column.get(row, "-")) for column in columns.values()]
        table.add_row(row, *cells)
    print_table(table, console)
    if stock is not None:
        names = (STOCK, *[""] * len(stock.lines))
        _print_lines(zip(names, stock.lines, strict=False), console)


def print_details(report: Report, console: Console) -> None:
    """Print each delegate with the result of its verification, and the reasons why operators are not delegated.

    Args:
        report: the record of one dry run.
        console: the output; a terminal gets one screen of broken lines, a file all lines unbroken.
    """
    for part in (lines_beside_float, _islands, _methods, _left_float):
        _print_lines(part(report), console)
    for part in (accuracy_lines, _each_delegate, footprint_lines):
        _print_lines(part(report), console)
    _print_causes(report, console)


def print_recommendation(
    reports: Mapping[str, Report], policy: str, console: Console
) -> None:
    """Print a recommendation, computed from the result of each policy.

    Args:
        reports: the record of one dry run for each policy.
        policy: the one asked for.
        console: the output.
    """
    _print_lines([("recommended", recommendation(reports, policy))], console)


def _print_causes(report: Report, console: Console) -> None:
    reported_causes = causes(report)
    if console.is_terminal:
        _print_paragraphs(reported_causes, report, console)
        return
    for cause in reported_causes:
        lines = []
        for name, value in _facts(cause):
            if name != "at":
                lines.append(f"  {name}: {value}")
        lines += _rows(cause.verdicts, report)
        console.print(Text("\n".join(lines)), soft_wrap=True)


def _print_paragraphs(
    reported_causes: Sequence[Cause], report: Report, console: Console
) -> None:
    """Print as many reasons as fit on one screen, and how many more there are."""
    if not reported_causes:
        return
    paragraphs = [_paragraph(cause, report, console.width) for cause in reported_causes]
    shown = _fitting(paragraphs, console.height)
    for paragraph in shown:
        console.print()
        console.print(paragraph, soft_wrap=True)
    console.print()
    rest = reported_causes[len(shown) :]
    if rest:
        operators = counted(sum(len(cause.verdicts) for cause in rest), "operator")
        reasons = counted(len(rest), "more reason")
        line = f"and {reasons} for {operators}; a report file has all of them, such as --report FILE.html"
        console.print(Text(line))


def _fitting(paragraphs: list[Text], height: int) -> list[Text]:
    """Return the first paragraphs, as many as fit on one screen, but at least one."""
    number = 0
    end = TAKEN
    for paragraph in paragraphs:
        end += paragraph.plain.count("\n") + 2
        if end > height:
            break
        number += 1
    return paragraphs[: max(1, number)]


def _paragraph(cause: Cause, report: Report, width: int) -> Text:
    """Return a reason for a terminal: the operators it keeps off, and under them the facts about it."""
    operators = Counter(
        report.method_prefix(verdict.method) + verdict.as_written
        for verdict in cause.verdicts
    )
    heading = ", ".join(_with_counts(operators)[:NAMED])
    rest = sum(list(operators.values())[NAMED:])
    if rest:
        heading += f" and {rest} more"
    lines = []
    for name, value in _facts(cause):
        if name == "at":
            value = _cropped(value, width - 12)
        lines += wrapped(f"  {name:10}", value, width)
    bold = "\n".join(wrapped("", heading, width))
    return Text.assemble((bold, "bold"), "\n", "\n".join(lines))


def _with_counts(operators: Counter[str]) -> list[str]:
    """Return each operator's name, with how often it occurs if that is more than once."""
    return [
        f"{name} x{number}" if number > 1 else name
        for name, number in operators.items()
    ]


def _cropped(code: str, width: int) -> str:
    """Return code in which a word that is too long for a line ends in an ellipsis."""
    return re.sub(rf"(\S{{{width - 1}}})\S\S+", "\\1\N{HORIZONTAL ELLIPSIS}", code)


def _facts(cause: Cause) -> Lines:
    """Yield the facts about a reason, each with its name."""
    first = cause.first
    text = plain(first.reason)
    yield first.verdict, f"{text} [{first.issue}]" if first.issue else text
    yield "costs", cause.cost
    yield "to do", cause.advice
    for verdict in cause.verdicts:
        if verdict.source:
            yield "at", verdict.source
            return


def _print_lines(lines: Iterable[tuple[str, str]], console: Console) -> None:
    """Print names, each with a text beside it; a terminal breaks the text between words, a file not at all."""
    for name, value in lines:
        text = f"{name:16}{value}"
        if console.is_terminal:
            text = "\n".join(wrapped(f"{name:16}", value, console.width))
        console.print(Text(text), soft_wrap=True)


def _methods(report: Report) -> Lines:
    """Yield how much of each method is delegated, if there are several."""
    for name, own in report.by_method.items():
        operators = f"{_delegated(own)} operators delegated"
        share = "no MACs"
        if has_macs(own):
            share = f"{share_of_macs(own)} of its MACs"
        yield "method", f"{name}: {operators}, {share}"


def _delegated(report: Report) -> str:
    """Return how many of the computing operators are delegated."""
    totals = report.totals
    return f"{totals.operators_delegated} of {totals.operators}"


def _left_float(report: Report) -> Lines:
    """Yield why the quantiser left operators float and how many, the commonest reasons first."""
    reasons = Counter(verdict.left_float for verdict in report.left_float)
    for reason, number in reasons.most_common(3):
        yield (
            "left float",
            f"{counted(number, 'operator')}: {plain_left_float(reason)}",
        )


def _remarks(report: Report) -> Lines:
    """Yield why a delegate was not verified, or the note of its verification."""
    for each in report.verifications:
        if each.verified and each.note == EARLIER:
            continue
        remark = each.reason or each.note
        if remark:
            yield each.delegate, remark


def _each_delegate(report: Report) -> Lines:
    """Yield the contents of every delegate, and how its verification ended."""
    verifications = {each.delegate: each for each in report.verifications}
    for tag in report.delegates:
        operators: Counter[str] = Counter()
        macs = 0
        for verdict in report.verdicts:
            if verdict.delegate == tag:
                macs += verdict.macs
                if verdict.computes:
                    operators[verdict.op] += 1
        number = counted(operators.total(), "operator")
        contents = f"{number}, {counted(macs, 'MAC')}"
        if operators:
            contents += f": {', '.join(_with_counts(operators))}"
        yield tag, contents
        verification = verifications.get(tag)
        if verification is None:
            yield "", "not verified: left out by --no-verify"
        elif verification.verified:
            yield "", f"{outcome(verification)} ({verification.seconds:.1f} s)"
        else:
            yield "", outcome(verification)
        border = report.borders.get(tag)
        if border and border.kernels:
            yield "", f"border: {border_text(border)}"


def _islands(report: Report) -> Lines:
    """Yield which non-fuseable islands were propagated and which rejected, if that was left to the verification."""
    if report.subject.non_fuseable != "best":
        return
    for treatment in ("propagated", "rejected"):
        names = [v.as_written for v in report.verdicts if v.island == treatment]
        if names:
            number = counted(len(names), "non-fuseable island")
            yield treatment, f"{number}: {', '.join(names)}"


def _totals(report: Report) -> Lines:
    yield "delegates", str(len(report.delegates))
    yield "operators", f"{_delegated(report)} delegated"
    share = share_of_macs(report)
    yield "MACs", f"{share} delegated" if has_macs(report) else share
    yield "not delegated", counted(len(report.fallbacks), "operator")


def _rows(verdicts: Sequence[NodeVerdict], report: Report) -> list[str]:
    """Return a line for each operator: its name, its operator as it was written, and its source line."""
    label_width = max(len(report.label(verdict)) for verdict in verdicts)
    op_width = max(len(verdict.as_written) for verdict in verdicts)
    rows = []
    for verdict in verdicts:
        label = f"{report.label(verdict):{label_width}}"
        op = f"{verdict.as_written:{op_width}}"
        rows.append(f"    {label}  {op}  {verdict.source}".rstrip())
    return rows
