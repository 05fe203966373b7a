"""Rows as a table for a terminal, and as an HTML page that links each program's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_arm.core.templates import templates
from safe_arm.jobs.row import Row
from safe_arm.report.accuracy_text import decibels
from safe_arm.report.numbers import counted
from safe_arm.report.table_text import print_table

#: The columns in their order; one that is empty in all rows is left out.
COLUMNS = (
    *("program", "target", "profile", "policy"),
    *("operators", "delegates", "delegated", "demoted", "verified", "SQNR", "cycles"),
    *("stock", "worse", "metric", "wanted", "cost", "s", "outcome"),
)
#: The columns of words; all others have numbers, which stand on the right.
WORDS = ("program", "target", "profile", "policy", "stock", "outcome")
#: Explanations of headings whose word alone does not say it; the page shows them under the pointer.
MEANINGS = {
    "delegated": "Share of the multiply-accumulates in delegates, of the operators if there are none",
    "demoted": "Operators that failed in the backend, or whose delegate was wrong",
    "verified": "Delegates that equal the quantised graph",
    "SQNR": "Signal to quantisation noise ratio of the worst output, against the float net",
    "cycles": "Cycles of an inference, as Vela estimates them",
    "worse": "Figures that are worse than in the baseline",
    "s": "Seconds that the row took",
}
#: The columns that a narrow terminal leaves out, the first one first.
_SPARED = ("verified", "delegated", "s", "demoted", "delegates")
#: The maximum length of an error in a table.
LONGEST = 100
#: The width of a table where no terminal bounds it.
WIDEST = 400


def cells(rows: Sequence[Row], *, whole: bool = False) -> list[dict[str, str]]:
    """Return each row's text by column; all rows of a run have the same columns.

    Args:
        rows: the rows.
        whole: whether errors are as long as they are.
    """
    lines = []
    for row in rows:
        own = {"s": f"{row.seconds:.1f}", "outcome": outcome(row, whole=whole)}
        lines.append({**row.labels, **_figures(row), **own})
    used = [name for name in COLUMNS if any(line.get(name) for line in lines)]
    return [{name: line.get(name, "") for name in used} for line in lines]


def _figures(row: Row) -> dict[str, str]:
    figures = row.figures
    if not figures:
        return {}
    if "cost" in figures:
        texts = {
            "metric": f"{figures['value']:.4g}",
            "cost": f"{figures['cost']:,.0f} {figures['cost_unit']}",
        }
        # Within a budget, no accuracy is wanted.
        if figures["at_least"] is not None:
            texts["wanted"] = f"{figures['at_least']:.4g}"
        return texts
    texts = {
        "operators": f"{figures['operators_delegated']} of {figures['operators']}",
        "delegates": str(figures["delegates"]),
        "delegated": f"{100 * float(figures['share_delegated'] or 0):.1f} %",
        "demoted": str(figures["demoted"]),
    }
    if figures.get("verified") is not None:
        texts["verified"] = f"{figures['verified']} of {figures['delegates']}"
    for name in ("stock", "worse"):
        if name in figures:
            texts[name] = str(figures[name])
    sqnr = figures.get("sqnr_db")
    if sqnr is not None:
        texts["SQNR"] = decibels(float(sqnr))
    if figures.get("vela_cycles") is not None:
        texts["cycles"] = f"{figures['vela_cycles']:,}"
    return texts


def outcome(row: Row, *, whole: bool = False) -> str:
    """Return in a word or a line how a job ended, a long error shortened unless ``whole``."""
    again = ", second try" if row.tries > 1 else ""
    if row.exit_status == 0:
        skipped = row.figures.get("not_compared")
        also = f", {skipped} not compared" if skipped else ""
        return f"ok{again}{also}"
    if row.result and row.figures.get("worse"):
        return f"worse{again}"
    if row.result and row.figures.get("demoted"):
        return f"demoted{again}"
    error = row.error or f"status {row.exit_status}"
    if len(error) > LONGEST and not whole:
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
    lines = cells(rows)
    for row, line in zip(rows, lines, strict=True):
        if not row.result:
            line["outcome"] = "failed"
    left_out = _too_wide(lines, console.width)
    print_table(_table(lines, left_out), console)
    if left_out:
        text = f"the page has {counted(len(left_out), 'more column')}: {', '.join(left_out)}"
        console.print(Text(text))
    for row in rows:
        if not row.result or row.figures.get("worse"):
            console.print(Text(f"{row.name}: {row.error}"), soft_wrap=True)
    failed = sum(not row.result for row in rows)
    good = len(rows) - failed
    text = f"{counted(len(rows), 'row')}: {good} with a result, {failed} failed"
    again = sum(row.tries > 1 for row in rows)
    if again:
        text += f", {again} on the second try"
    console.print(Text(text), soft_wrap=True)


def _table(lines: Sequence[Mapping[str, str]], left_out: Collection[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    names = [name for name in lines[0] if name not in left_out] if lines else []
    for name in names:
        justify: Literal["left", "right"] = "left" if name in WORDS else "right"
        table.add_column(name, overflow="fold", justify=justify)
    for line in lines:
        table.add_row(*[Text(line[name]) for name in names])
    return table


def _too_wide(lines: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """Return the columns to leave out so that a table fits, as far as it can, in the order of the table."""
    widths: dict[str, int] = {}
    for line in lines:
        for name, text in line.items():
            widths[name] = max(widths.get(name, len(name)), len(text))
    left_out = []
    for name in _SPARED:
        if sum(widths.values()) + 2 * len(widths) <= width:
            break
        if widths.pop(name, None) is not None:
            left_out.append(name)
    return [name for name in COLUMNS if name in left_out]


def index(
    rows: Sequence[Row],
    expected: int,
    title: str,
) -> str:
    """Return a page that opens from disk and loads nothing.

    Args:
        rows: the rows so far, in order.
        expected: the number of rows in the end.
        title: the heading.
    """
    template = templates("safe_arm.jobs", "assets").get_template("index.html.j2")
    return template.render(
        title=title,
        lines=list(zip(rows, cells(rows, whole=True), strict=True)),
        expected=expected,
        words=WORDS,
        meanings=MEANINGS,
    )
