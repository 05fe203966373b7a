"""The report as text: tables that fit one screen on a terminal, plain lines with every operator elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_arm.core.record import EARLIER, NodeVerdict, Report, Verification

#: Lines of a terminal that everything but the table of reasons takes, about.
TAKEN = 10

_Why = tuple[str, list[NodeVerdict]]


def print_report(report: Report, console: Console) -> None:
    """Print what was delegated, what was not and why.

    Args:
        report: the record of one export.
        console: where to; a table if it is a terminal, else lines that are never wrapped.
    """
    parts = (_totals, _methods, _left_float, _engines, _verified)
    _print_lines((line for part in parts for line in part(report)), console)
    _print_reasons([(_why(*key), verdicts) for key, verdicts in report.by_reason().items()], report, console)
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
        console: where to; tables if it is a terminal, else lines that are never wrapped.
    """
    _print_lines((*_methods(report), *_left_float(report), *_each(report)), console)
    groups = report.by_reason().items()
    _print_reasons([(f"{verdicts[0].verdict}: {_why(*key)}", verdicts) for key, verdicts in groups], report, console)


def _print_reasons(groups: list[_Why], report: Report, console: Console) -> None:
    if not console.is_terminal:
        for why, verdicts in groups:
            console.print(Text("\n".join((f"  {why}", *_rows(verdicts, report)))), soft_wrap=True)
    elif groups:
        shown = _fitting(groups, console)
        console.print(_table(shown))
        if rest := groups[len(shown) :]:
            operators = _count(sum(len(verdicts) for _, verdicts in rest), "operator")
            reasons = _count(len(rest), "more reason")
            console.print(Text(f"and {reasons} for {operators}; --report FILE.html has all of them"))


def _print_lines(lines: Iterable[tuple[str, str]], console: Console) -> None:
    """Print names with what is said of each beside it; on a terminal words are kept whole, elsewhere lines are."""
    if not console.is_terminal:
        for name, value in lines:
            console.print(Text(f"{name:16}{value}"), soft_wrap=True)
        return
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(min_width=15, no_wrap=True)
    for name, value in lines:
        grid.add_row(Text(name), Text(value))
    console.print(grid)


def _fitting(groups: list[_Why], console: Console) -> list[_Why]:
    """Return the first reasons, as many as leave the table on one screen, but one at least."""
    many = min(len(groups), console.height)
    while many > 1 and len(console.render_lines(_table(groups[:many]))) > console.height - TAKEN:
        many -= 1
    return groups[:many]


def _methods(report: Report) -> Iterator[tuple[str, str]]:
    """Say how much of each method is delegated, if there are several."""
    for name, own in report.by_method.items():
        kept, share = len(own.compute) - len(own.fallbacks), f"{100 * own.macs_delegated:.1f} % of its MACs"
        yield "method", f"{name}: {kept} of {len(own.compute)} operators delegated, {share}"


def _left_float(report: Report) -> Iterator[tuple[str, str]]:
    """Say what the quantiser left float because quantising it failed, by reason."""
    reasons = Counter(verdict.left_float for verdict in report.left_float)
    for reason, number in reasons.most_common(3):
        yield "left float", f"{_count(number, 'operator')}: {reason}"


def _engines(report: Report) -> Iterator[tuple[str, str]]:
    """Say how many operators each engine runs, and how fast what was timed is beside the portable kernels."""
    many = Counter(verdict.engine for verdict in report.compute if verdict.engine)
    timed = {e.engine: [d for d in report.engines if d.engine == e.engine and d.microseconds] for e in report.engines}
    for engine, number in many.items():
        cost = ""
        if delegates := timed.get(engine):
            own = sum(each.microseconds or 0 for each in delegates)
            portable = sum(each.portable_microseconds or 0 for each in delegates)
            cost = f", {own:.0f} us on this CPU, {portable:.0f} us on the portable kernels"
        yield "engine", f"{engine}: {_count(number, 'operator')}{cost}"


def _verified(report: Report) -> Iterator[tuple[str, str]]:
    """Say how many delegates were verified and how well, and why the others were not."""
    if not report.verifications:
        return
    good = [each for each in report.verifications if each.verified]
    seconds = sum(each.seconds for each in report.verifications)
    many = _count(len(report.verifications), "delegate")
    line = f"{len(good)} of {many} against the reference model ({seconds:.1f} s)"
    if good:
        worst = max(each.worst for each in good)
        most = f"at most {worst:.0f} code{'' if worst == 1 else 's'} off in one operator"
        line += f"; {most if worst else '0 codes off'} on {_sets([each.tried for each in good])}"
    earlier = [each for each in good if each.note == EARLIER]
    yield "verified", f"{line}, {len(earlier)} of them in an earlier run" if earlier else line
    remarks = ((each.delegate, each.reason or each.note) for each in report.verifications if each not in earlier)
    yield from ((delegate, remark) for delegate, remark in remarks if remark)


def _each(report: Report) -> Iterator[tuple[str, str]]:
    """Say of every delegate what is in it, and how its verification ended."""
    verified = {each.delegate: each for each in report.verifications}
    for tag in report.delegates:
        ops = Counter(v.op for v in report.compute if v.delegate == tag)
        listed = ", ".join(f"{op} x{number}" if number > 1 else op for op, number in ops.items())
        total = sum(v.macs for v in report.verdicts if v.delegate == tag)
        yield tag, f"{_count(ops.total(), 'operator')}, {_count(total, 'MAC')}{f': {listed}' if listed else ''}"
        yield "", _outcome(verified[tag]) if tag in verified else "not verified: left out by --no-verify"


def _sets(tried: Sequence[int]) -> str:
    fewest, most = min(tried), max(tried)
    more = "" if fewest == most else " or more"
    return f"{fewest}{more} set{'s' * (bool(more) or fewest != 1)} of inputs{' each' * (len(tried) > 1)}"


def _outcome(record: Verification) -> str:
    if not record.verified:
        return record.reason
    apart = f"{record.worst:.0f} code{'' if record.worst == 1 else 's'} off"
    return f"{record.note or 'verified'}: at most {apart} on {_sets([record.tried])} ({record.seconds:.1f} s)"


def _totals(report: Report) -> tuple[tuple[str, str], ...]:
    kept, all_of = len(report.compute) - len(report.fallbacks), len(report.compute)
    return (
        ("delegates", str(len(report.delegates))),
        ("operators", f"{kept} of {all_of} delegated"),
        ("MACs", f"{100 * report.macs_delegated:.1f} % delegated"),
        ("not delegated", _count(len(report.fallbacks), "operator")),
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
        yield "verified", f"{sum(each.verified for each in report.verifications)} of {len(report.delegates)}"
    if report.cycles:
        yield "Vela cycles", f"{sum(report.cycles.values()):,}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _why(reason: str, issue: str) -> str:
    return f"{reason} [{issue}]" if issue else reason


def _rows(verdicts: list[NodeVerdict], report: Report) -> list[str]:
    name_width = max(len(report.label(verdict)) for verdict in verdicts)
    op_width = max(len(verdict.op) for verdict in verdicts)
    return [f"    {report.label(v):{name_width}}  {v.op:{op_width}}  {v.source}".rstrip() for v in verdicts]


def _table(groups: list[_Why]) -> Table:
    """Return a table with a row for each reason: the operators it keeps off, and where the first is in the code."""
    table = Table("operators", "why", box=box.SIMPLE_HEAD)
    table.add_column("your code", overflow="fold")
    for why, verdicts in groups:
        ops = Counter(verdict.op for verdict in verdicts)
        listed = "\n".join(f"{number} {op}" for op, number in ops.most_common(2))
        source = next((verdict.source for verdict in verdicts if verdict.source), "")
        table.add_row(*map(Text, (listed + ("\n..." if len(ops) > 2 else ""), why, source)))
    return table


def _hint(report: Report) -> str:
    if not report.propagate_would_keep:
        return ""
    refused = _count(report.islands_refused, "refused island")
    return f"`--non-fuseable propagate` would delegate {report.propagate_would_keep} of the {refused}"
