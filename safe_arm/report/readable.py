"""A report that prints as its summary, and in a notebook as a table with a link to the page."""

from __future__ import annotations

import base64
from io import StringIO

from rich.console import Console

from safe_arm.core.record import Report
from safe_arm.report.html import html, table
from safe_arm.report.terminal import print_report

#: The size that ``str`` fits into, in characters and lines.
WIDTH = 80
HEIGHT = 40
PAGE = "safe_arm-report.html"


class ReadableReport(Report):
    """A ``Report`` whose text is the summary that ``safe-arm export`` prints; in a notebook it is a table."""

    def __str__(self) -> str:
        """Return the summary in lines of at most 80 characters."""
        stream = StringIO()
        console = Console(
            file=stream,
            width=WIDTH,
            height=HEIGHT,
            force_terminal=True,
            force_jupyter=False,
            color_system=None,
        )
        print_report(self, console)
        lines = map(str.rstrip, stream.getvalue().splitlines())
        return "\n".join(lines).strip("\n")

    def _repr_pretty_(self, printer: object, cycle: bool) -> None:
        printer.text(str(self))  # type: ignore[attr-defined]

    def _repr_html_(self) -> str:
        """Return the table, and a link that holds the page and saves it, because a notebook may be moved."""
        page = base64.b64encode(html(self).encode()).decode()
        return table(self, f"data:text/html;charset=utf-8;base64,{page}", PAGE)


def readable(report: Report) -> ReadableReport:
    """Return the same report as one that prints."""
    return ReadableReport(**vars(report))
