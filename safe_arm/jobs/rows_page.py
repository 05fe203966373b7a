"""Rows as an HTML page that links each program's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined

from safe_arm.jobs.row import Row
from safe_arm.jobs.rows_table import cells


def index(rows: Sequence[Row], expected: int, title: str) -> str:
    """Return a page that opens from disk and loads nothing.

    Args:
        rows: those there are, in order.
        expected: how many there will be.
        title: its heading.
    """
    lines = [
        (row, _page(row), line) for row, line in zip(rows, cells(rows), strict=True)
    ]
    failed = sum(not row.result for row in rows)
    template = _environment().get_template("index.html.j2")
    return template.render(title=title, lines=lines, failed=failed, expected=expected)


def _page(row: Row) -> str:
    return next((name for name in row.files if name.endswith(".html")), "")


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
