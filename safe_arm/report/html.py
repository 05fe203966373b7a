"""The report as one HTML file that loads nothing: the graph, and why each operator is where it is."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files

from jinja2 import Environment
from markupsafe import Markup

from safe_arm.core.plain_reasons import plain
from safe_arm.core.record import Report
from safe_arm.core.templates import templates
from safe_arm.known_issues import known_issues
from safe_arm.report.accuracy_plot import accuracy_section
from safe_arm.report.accuracy_text import decibels
from safe_arm.report.causes import causes
from safe_arm.report.fidelity_text import fidelity_lines, outcomes
from safe_arm.report.footprint_lines import border_text
from safe_arm.report.numbers import counted, counted_of, percent, share_of_macs, short
from safe_arm.report.page_data import page_data

#: The verdicts in the order of their bars and their legend.
VERDICTS = ("delegated", "refused", "demoted", "de-tagged")
#: Maximum number of operators that are listed under a reason; the graph shows the rest.
LISTED = 3


def html(report: Report, title: str = "") -> str:
    """Return a page that opens from disk and loads nothing.

    Args:
        report: the record of one partitioning.
        title: the model's name, for the heading.
    """
    template = _environment().get_template("report.html.j2")
    reported_causes = causes(report)
    return template.render(
        title=title or report.subject.model or "safe_arm report",
        date=datetime.now(timezone.utc).date().isoformat(),
        report=report,
        coverage=_coverage(report),
        reasons=reported_causes,
        listed=LISTED,
        outcomes=outcomes(report),
        accuracy=accuracy_section(report),
        fidelity=list(fidelity_lines(report)),
        verdicts=VERDICTS,
        issues={issue.id: issue for issue in known_issues()},
        data=_embedded(page_data(report, reported_causes)),
    )


def table(report: Report, link: str = "", name: str = "") -> str:
    """Return the summary as a small table for a notebook.

    Args:
        report: the record of one partitioning.
        link: the address of the page; empty for none.
        name: the file that the link is saved as.
    """
    template = _environment().get_template("table.html.j2")
    return template.render(
        report=report,
        coverage=_coverage(report),
        reasons=causes(report),
        link=link,
        name=name,
        listed=LISTED,
        fidelity=list(fidelity_lines(report)),
    )


def _coverage(report: Report) -> dict[str, Counter[str]]:
    """Return how many multiply-accumulates and operators there are of each verdict."""
    macs: Counter[str] = Counter()
    for verdict in report.verdicts:
        macs[verdict.verdict] += verdict.macs
    operators = Counter[str](verdict.verdict for verdict in report.compute)
    return {"MACs": macs, "operators": operators}


def _embedded(data: object) -> Markup:
    """Return JSON that no parser of HTML takes for a tag, a comment or the end of a script."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(
        text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    )


def _inlined(name: str) -> Markup:
    """Return one of our own files as it is, to stand between tags."""
    text = (files(__package__) / "assets" / name).read_text(encoding="utf-8")
    # The layout engine runs in a worker made of text, which is no module.
    return Markup(text.replace("export const { layout, Graph } = dagre;", ""))


@cache
def _environment() -> Environment:
    environment = templates("safe_arm.report", "assets")
    environment.globals["inlined"] = _inlined
    environment.filters |= {
        "short": short,
        "counted": counted,
        "counted_of": counted_of,
        "plain": plain,
        "decibels": decibels,
        "percent": percent,
        "share_of_macs": share_of_macs,
        "border_text": border_text,
    }
    return environment
