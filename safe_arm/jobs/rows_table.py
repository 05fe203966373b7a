"""Rows as a table of a terminal, and as the cells that the page shows too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_arm.jobs.row import Row
from safe_arm.report.numbers import counted

#: How many characters of an error a table shows.
LONGEST = 100
#: How wide a table may get where no terminal bounds it.
WIDEST = 400


def cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Return what each row says, by column; a column stands in all of them or in none.

    Args:
        rows: all of one run, in order.
    """
    found = [
        {
            **row.labels,
            **_figures(row),
            "s": f"{row.seconds:.1f}",
            "outcome": outcome(row),
        }
        for row in rows
    ]
    columns = [
        name
        for name in dict.fromkeys(name for each in found for name in each)
        if _tells(name, found)
    ]
    columns.sort(
        key=lambda name: {"s": 1, "outcome": 2}.get(name, 0)
    )  # a failed row has no figures before them
    return [{name: each.get(name, "") for name in columns} for each in found]


def _tells(column: str, found: list[dict[str, str]]) -> bool:
    return any(each.get(column) for each in found)


def _figures(row: Row) -> dict[str, str]:
    figures = row.figures
    if not figures:
        return {}
    if "cost" in figures:
        return {
            "metric": f"{figures['value']:.4g}",
            "wanted": f"{figures['at_least']:.4g}",
            "cost": f"{figures['cost']:,.0f} {figures['cost_unit']}",
        }
    verified, cycles = figures.get("verified"), figures.get("vela_cycles")
    return {
        "delegated": f"{100 * float(figures['share_delegated'] or 0):.1f} %",
        "demoted": str(figures["demoted"]),
        "verified": "" if verified is None else f"{verified} of {figures['delegates']}",
        "cycles": "" if cycles is None else f"{cycles:,}",
    }


def outcome(row: Row) -> str:
    """Return in a word or a line how a job ended."""
    again = ", second try" if row.tries > 1 else ""
    if row.exit_status == 0:
        return f"ok{again}"
    if row.result and row.figures.get("demoted"):
        return f"demoted{again}"
    error = row.error if len(row.error) <= LONGEST else f"{row.error[:LONGEST]}..."
    return f"{'' if row.result else 'failed: '}{error or f'status {row.exit_status}'}"


def print_rows(rows: Sequence[Row], stream: TextIO) -> None:
    """Print one table, its errors whole below it.

    Args:
        rows: all of one run, in order.
        stream: where to; as wide as it takes if that is no terminal.
    """
    console = Console(file=stream, highlight=False)
    if not console.is_terminal:
        console.width = WIDEST
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    lines = cells(rows)
    for name in lines[0] if lines else ():
        table.add_column(
            name, overflow="fold", justify="right" if name == "s" else "left"
        )
    for row, line in zip(rows, lines, strict=True):
        short = line if row.result else {**line, "outcome": "failed"}
        table.add_row(*map(Text, short.values()))
    console.print(table)
    failed = [row for row in rows if not row.result]
    for row in failed:
        console.print(Text(f"{row.name}: {row.error}"), soft_wrap=True)
    again = sum(row.tries > 1 for row in rows)
    text = f"{counted(len(rows), 'row')}: {len(rows) - len(failed)} with a result, {len(failed)} failed"
    console.print(
        Text(text + (f", {again} on the second try" if again else "")), soft_wrap=True
    )
