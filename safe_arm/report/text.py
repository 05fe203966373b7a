"""The report as text: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_arm.report.record import NodeVerdict, Report


def print_report(report: Report, console: Console) -> None:
    """Print what was delegated, what was not and why.

    Args:
        report: the record of one export.
        console: where to; a table if it is a terminal, else lines that are never wrapped.
    """
    for name, value in (*_totals(report), *_verified(report)):
        console.print(Text(f"{name:16}{value}"), soft_wrap=True)
    groups = by_reason(report)
    for (reason, issue), verdicts in groups.items():
        why = f"{reason} [{issue}]" if issue else reason
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


def by_reason(report: Report) -> dict[tuple[str, str], list[NodeVerdict]]:
    """Return the fallbacks grouped by (reason, known issue), both groups and nodes in graph order."""
    groups: dict[tuple[str, str], list[NodeVerdict]] = {}
    for verdict in report.fallbacks:
        groups.setdefault((verdict.reason, verdict.issue), []).append(verdict)
    return groups


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
