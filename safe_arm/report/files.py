"""The report as a file: JSON or HTML."""

from __future__ import annotations

import json
from pathlib import Path

from safe_arm.core.errors import UsageError
from safe_arm.core.record import Report
from safe_arm.core.whole_file import replace_file
from safe_arm.report.formats import format_of
from safe_arm.report.html import html

_NO_REPORT = (
    "there is no report yet, partitioner.report is None: lower the program first, with "
    "to_edge_transform_and_lower(program, partitioner=[partitioner])"
)


def rendered(report: Report | None, path: Path, title: str = "") -> bytes:
    """Return the bytes that ``write_report`` writes; arguments and errors are the same."""
    if report is None:
        raise UsageError(_NO_REPORT)
    if format_of(path) == ".html":
        return html(report, title).encode()
    return (json.dumps(report.to_dict(), indent=1) + "\n").encode()


def write_report(report: Report | None, path: str | Path, title: str = "") -> None:
    """Write a report as JSON or as HTML, selected by the file's suffix.

    Args:
        report: the record, ``partitioner.report``.
        path: the file, replaced atomically if it exists; its suffix is one of ``formats.FORMATS``.
        title: the model's name, for the heading of a page.

    Raises:
        UsageError: an unknown suffix, or nothing is lowered yet, so that there is no report.
    """
    replace_file(Path(path), rendered(report, Path(path), title))
