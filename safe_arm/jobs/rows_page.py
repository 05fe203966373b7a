"""Rows as an HTML page that links each program's own."""

from __future__ import annotations

from collections.abc import Sequence

from safe_arm.core.templates import templates
from safe_arm.jobs.row import Row
from safe_arm.jobs.rows_table import MEANINGS, WORDS, cells


def index(rows: Sequence[Row], expected: int, title: str) -> str:
    """Return a page that opens from disk and loads nothing.

    Args:
        rows: the rows so far, in order.
        expected: the number of rows in the end.
        title: the heading.
    """
    lines = []
    for row, line in zip(rows, cells(rows), strict=True):
        pages = [name for name in row.files if name.endswith(".html")]
        lines.append((row, pages[0] if pages else "", line))
    failed = sum(not row.result for row in rows)
    template = templates("safe_arm.jobs", "assets").get_template("index.html.j2")
    return template.render(
        title=title,
        lines=lines,
        failed=failed,
        expected=expected,
        words=WORDS,
        meanings=MEANINGS,
    )
