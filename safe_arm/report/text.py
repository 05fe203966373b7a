"""The report as text: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_arm.report.record import NodeVerdict, Report, Verification


def print_report(report: Report, console: Console, *, detailed: bool = False) -> None:
    """Print what was delegated, what was not and why.

    Args:
        report: the record of one export.
        console: where to; a table if it is a terminal, else lines that are never wrapped.
        detailed: with two lines for each delegate, and whether a fallback was refused or demoted.
    """
    for name, value in (*_totals(report), *(_each(report) if detailed else _verified(report))):
        console.print(Text(f"{name:16}{value}"), soft_wrap=True)
    groups = report.by_reason()
    for (reason, issue), verdicts in groups.items():
        why = f"{reason} [{issue}]" if issue else reason
        why = f"{'demoted' if verdicts[0] in report.contained else 'refused'}: {why}" if detailed else why
        if console.is_terminal:
            console.print(_table(why, verdicts))
        else:
            console.print(Text("\n".join((f"  {why}", *_rows(verdicts)))), soft_wrap=True)
    if hint := _hint(report):
        console.print(Text(hint), soft_wrap=True)


def _verified(report: Report) -> tuple[tuple[str, str], ...]:
    """Say how many delegates were verified and how well, and why the others were not."""
    if not report.verifications:
        return ()
    good = [each for each in report.verifications if each.verified]
    seconds = sum(each.seconds for each in report.verifications)
    line = (
        f"{len(good)} of {_count(len(report.verifications), 'delegate')} against the reference model ({seconds:.1f} s)"
    )
    if good:
        worst = max(each.worst for each in good)
        line += (
            f"; at most {worst:.0f} code{'' if worst == 1 else 's'} off in one operator" if worst else "; 0 codes off"
        )
    return (
        ("verified", line),
        *((each.delegate, said) for each in report.verifications if (said := each.reason or each.note)),
    )


def _each(report: Report) -> Iterator[tuple[str, str]]:
    """Say of every delegate what is in it, and how its verification ended."""
    verified = {each.delegate: each for each in report.verifications}
    for tag in report.delegates:
        ops = Counter(v.op for v in report.compute if v.delegate == tag)
        listed = ", ".join(f"{op} x{number}" if number > 1 else op for op, number in ops.items())
        total = sum(v.macs for v in report.verdicts if v.delegate == tag)
        yield tag, f"{_count(ops.total(), 'operator')}, {_count(total, 'MAC')}{f': {listed}' if listed else ''}"
        yield "", _outcome(verified[tag]) if tag in verified else "not verified: left out by --no-verify"


def _outcome(record: Verification) -> str:
    if not record.verified:
        return record.reason
    apart = f"{record.worst:.0f} code{'' if record.worst == 1 else 's'} off"
    sets = f"{record.tried} set{'' if record.tried == 1 else 's'} of inputs"
    return f"{record.note or 'verified'}: at most {apart} on {sets} ({record.seconds:.1f} s)"


def _totals(report: Report) -> tuple[tuple[str, str], ...]:
    kept, all_of = len(report.compute) - len(report.fallbacks), len(report.compute)
    return (
        ("delegates", str(len(report.delegates))),
        ("operators", f"{kept} of {all_of} delegated"),
        ("MACs", f"{100 * report.macs_delegated:.1f} % delegated"),
        ("not delegated", _count(len(report.fallbacks), "operator")),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _rows(verdicts: list[NodeVerdict]) -> list[str]:
    name_width = max(len(verdict.name) for verdict in verdicts)
    op_width = max(len(verdict.op) for verdict in verdicts)
    return [f"    {v.name:{name_width}}  {v.op:{op_width}}  {v.source}".rstrip() for v in verdicts]


def _table(why: str, verdicts: list[NodeVerdict]) -> Table:
    table = Table("node", "operator", title=Text(why), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("your code", overflow="fold")
    for verdict in verdicts:
        table.add_row(*map(Text, (verdict.name, verdict.op, verdict.source)))
    return table


def _hint(report: Report) -> str:
    if not report.propagate_would_keep:
        return ""
    refused = _count(report.islands_refused, "refused island")
    return f"`--non-fuseable propagate` would delegate {report.propagate_would_keep} of the {refused}"
