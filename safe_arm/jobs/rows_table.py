"""Rows as a table for a terminal, and as the cells that the page shows too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_arm.jobs.row import Row
from safe_arm.report.numbers import counted

#: The columns in their order; one that is empty in all rows is left out.
COLUMNS = (
    *("program", "target", "profile", "policy"),
    *("delegated", "demoted", "verified", "cycles"),
    *("metric", "wanted", "cost", "s", "outcome"),
)
#: The maximum length of an error in a table.
LONGEST = 100
#: The width of a table where no terminal bounds it.
WIDEST = 400


def cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Return each row's text by column; all rows of a run have the same columns."""
    lines = []
    for row in rows:
        own = {"s": f"{row.seconds:.1f}", "outcome": outcome(row)}
        lines.append({**row.labels, **_figures(row), **own})
    used = [name for name in COLUMNS if any(line.get(name) for line in lines)]
    return [{name: line.get(name, "") for name in used} for line in lines]


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
    texts = {
        "delegated": f"{100 * float(figures['share_delegated'] or 0):.1f} %",
        "demoted": str(figures["demoted"]),
    }
    if figures.get("verified") is not None:
        texts["verified"] = f"{figures['verified']} of {figures['delegates']}"
    if figures.get("vela_cycles") is not None:
        texts["cycles"] = f"{figures['vela_cycles']:,}"
    return texts


def outcome(row: Row) -> str:
    """Return in a word or a line how a job ended."""
    again = ", second try" if row.tries > 1 else ""
    if row.exit_status == 0:
        return f"ok{again}"
    if row.result and row.figures.get("demoted"):
        return f"demoted{again}"
    error = row.error or f"status {row.exit_status}"
    if len(error) > LONGEST:
        error = f"{error[:LONGEST]}..."
    return error if row.result else f"failed: {error}"


def print_rows(rows: Sequence[Row], stream: TextIO) -> None:
    """Print one table, the whole errors below it.

    Args:
        rows: all rows of one run, in order.
        stream: the destination; the table is as wide as it needs if that is no terminal.
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
        if not row.result:
            line["outcome"] = "failed"
        table.add_row(*map(Text, line.values()))
    console.print(table)
    failed = [row for row in rows if not row.result]
    for row in failed:
        console.print(Text(f"{row.name}: {row.error}"), soft_wrap=True)
    good = len(rows) - len(failed)
    text = f"{counted(len(rows), 'row')}: {good} with a result, {len(failed)} failed"
    again = sum(row.tries > 1 for row in rows)
    if again:
        text += f", {again} on the second try"
    console.print(Text(text), soft_wrap=True)
