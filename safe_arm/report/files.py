"""The report as a file: JSON, HTML, or an overlay for Model Explorer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from safe_arm.core.record import Report
from safe_arm.report.formats import check_ending
from safe_arm.report.html import html
from safe_arm.report.model_explorer import graph, overlay


def rendered(report: Report, path: Path) -> bytes:
    """Return what to write to a report's file.

    Args:
        report: the record.
        path: the file; its ending decides, see ``endings.ENDINGS``.

    Raises:
        UsageError: an ending that no report has.
    """
    return _RENDERINGS[check_ending(path)](report).encode()


def write_report(report: Report, path: str | Path) -> None:
    """Write a report as JSON, HTML or an overlay for Model Explorer, as the ending of its name says.

    Args:
        report: the record, ``partitioner.report``.
        path: the file; see ``endings.ENDINGS``.

    Raises:
        UsageError: an ending that no report has.
    """
    Path(path).write_bytes(rendered(report, Path(path)))


def _json(report: Report) -> str:
    return json.dumps(report.to_dict(), indent=1) + "\n"


def _overlay(report: Report) -> str:
    return json.dumps(overlay(report), indent=1) + "\n"


def _graph(report: Report) -> str:
    return json.dumps(graph(report), indent=1) + "\n"


_RENDERINGS: dict[str, Callable[[Report], str]] = {
    ".overlay.json": _overlay,
    ".graph.json": _graph,
    ".json": _json,
    ".html": html,
}
