"""The report as one HTML file: the graph, why each operator is where it is, and nothing to fetch."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from safe_arm.core.record import NodeVerdict, Report
from safe_arm.known_issues import known_issues
from safe_arm.report.accuracy_plot import accuracy_section
from safe_arm.report.causes import Cause, causes
from safe_arm.report.fidelity_text import fidelity_lines, outcome
from safe_arm.report.numbers import counted, percent, short
from safe_arm.report.page_data import drawn, drawn_as

VERDICTS = ("delegated", "elsewhere", "refused", "demoted", "de-tagged")
#: What a reader calls them, where that is not the same.
NAMES = {"elsewhere": "on another engine"}
#: How many operators are listed under a reason before the rest is left to the graph.
LISTED = 3


def html(report: Report, title: str = "") -> str:
    """Return a page that opens from disk and loads nothing.

    Args:
        report: the record of one partitioning.
        title: the model's name, for the heading.
    """
    page, found = _environment().get_template("report.html.j2"), causes(report)
    used = {*map(drawn_as, report.compute)}
    return page.render(
        title=title or report.subject.model or "safe_arm report",
        date=datetime.now(timezone.utc).date().isoformat(),
        report=report,
        subject=report.subject,
        coverage=_coverage(report),
        reasons=_reasons(report, found),
        delegates=_delegates(report),
        engines=_engines(report),
        accuracy=accuracy_section(report),
        fidelity=list(fidelity_lines(report)),
        verdicts=[each for each in VERDICTS if each in used],
        names=NAMES,
        issues={issue.id: issue for issue in known_issues()},
        data=_embedded(drawn(report, found)),
    )


def table(report: Report, link: str = "", name: str = "") -> str:
    """Return the summary as a small table for a notebook.

    Args:
        report: the record of one partitioning.
        link: the address of the page; empty for none.
        name: the file that the link is saved as.
    """
    verified = sum(each.verified for each in report.verifications)
    return (
        _environment()
        .get_template("table.html.j2")
        .render(
            report=report,
            subject=report.subject,
            coverage=_coverage(report),
            reasons=_reasons(report, causes(report)),
            verified=verified,
            link=link,
            name=name,
            shown=LISTED,
            fidelity=list(fidelity_lines(report)),
        )
    )


def _coverage(
    report: Report,
) -> list[tuple[str, str, int, list[tuple[str, int, float]]]]:
    """Return for each bar: what is counted, its share delegated, the total, and the parts by verdict."""
    macs: Counter[str] = Counter()
    for verdict in report.verdicts:
        macs[drawn_as(verdict)] += verdict.macs
    operators = Counter(map(drawn_as, report.compute))
    counts = {"MACs": macs, "operators": operators}
    return [
        (name, _share(parts), parts.total(), _parts(parts))
        for name, parts in counts.items()
    ]


def _share(parts: Counter[str]) -> str:
    return (
        f"{percent(parts['delegated'], parts.total())} %" if parts.total() else "none"
    )


def _parts(counted: Counter[str]) -> list[tuple[str, int, float]]:
    total = counted.total()
    return [
        (verdict, counted[verdict], 100 * counted[verdict] / total)
        for verdict in VERDICTS
        if counted[verdict]
    ]


def _reasons(report: Report, found: list[Cause]) -> list[dict[str, Any]]:
    """Return the groups of fallbacks, those with most multiply-accumulates first."""
    number = {id(verdict): each for each, verdict in enumerate(report.verdicts)}
    return [
        {
            **vars(cause),
            "drawn": drawn_as(cause.verdicts[0]),
            "engines": dict.fromkeys(
                verdict.elsewhere for verdict in cause.verdicts if verdict.elsewhere
            ),
            "macs": cause.macs,
            "nodes": [number[id(verdict)] for verdict in cause.verdicts],
            "listed": [
                (number[id(verdict)], verdict) for verdict in cause.verdicts[:LISTED]
            ],
        }
        for cause in found
    ]


def _delegates(report: Report) -> list[dict[str, Any]]:
    members: dict[str, list[NodeVerdict]] = {tag: [] for tag in report.delegates}
    for verdict in report.verdicts:
        if verdict.delegate:
            members[verdict.delegate].append(verdict)
    verified = {each.delegate: each for each in report.verifications}
    return [
        {
            "tag": tag,
            "operators": sum(verdict.computes for verdict in inside),
            "macs": sum(verdict.macs for verdict in inside),
            "verified": tag in verified and verified[tag].verified,
            "outcome": outcome(verified[tag]) if tag in verified else "not verified",
        }
        for tag, inside in members.items()
    ]


def _engines(report: Report) -> list[dict[str, Any]]:
    """Return what runs on each engine, and what was measured of its delegates on this CPU."""
    many = Counter(verdict.engine for verdict in report.compute if verdict.engine)
    found = []
    for engine, operators in many.items():
        own = [each for each in report.engines if each.engine == engine]
        timed = [each for each in own if each.microseconds is not None]
        times = [
            sum(each.microseconds or 0 for each in timed),
            sum(each.portable_microseconds or 0 for each in timed),
        ]
        reasons = dict.fromkeys(each.reason for each in own if each.reason)
        found.append(
            {
                "engine": engine,
                "operators": operators,
                "note": "; ".join(reasons),
                "times": [f"{time:,.0f} µs" for time in times] if timed else [],
            }
        )
    return found


def _embedded(data: object) -> Markup:
    """Return JSON that no parser of HTML takes for a tag, a comment or the end of a script."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(
        text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    )


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _inlined(name: str) -> Markup:
    """Return one of our own files as it is, to stand between tags."""
    text = _asset(name)
    # The layout engine runs in a worker made of text, which is no module.
    return Markup(text.replace("export const { layout, Graph } = dagre;", ""))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["inlined"] = _inlined
    environment.filters |= {"short": short, "counted": counted}
    return environment
