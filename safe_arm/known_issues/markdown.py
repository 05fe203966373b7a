"""The known issues as a page of the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from safe_arm.known_issues import KnownIssue
from safe_arm.known_issues.upstream_pages import upstream_pages

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

HEAD = """\
# Known issues

Bugs of ExecuTorch's Arm backend that safe_arm knows, from `safe_arm/known_issues/issues.json`. Reports name them by
their id. A release is listed if the bug was seen there; earlier ones were not always tried. Written by
`safe-arm issues --markdown > docs/known-issues.md`.
"""


def page(issues: Sequence[KnownIssue]) -> str:
    """Return a Markdown page: a table of the issues, then a section about each."""
    rows = (
        f"| [{i.id}](#{i.id.lower()}) | {i.releases} | {_cell(i.title)} |"
        for i in issues
    )
    table = "\n".join(
        ("| id | ExecuTorch | what happens |", "| --- | --- | --- |", *rows)
    )
    pages = upstream_pages()
    return "\n".join((HEAD, table, *(_section(issue, pages) for issue in issues)))


def _section(issue: KnownIssue, pages: Mapping[str, Traversable]) -> str:
    number = issue.upstream.rpartition("#")[2]
    link = (
        f"[{issue.upstream}](https://github.com/{issue.upstream.replace('#', '/issues/')})"
        if number
        else ""
    )
    only = f", only with {issue.only_with}" if issue.only_with else ""
    name = pages[issue.id].name if issue.id in pages else ""
    facts = (
        ("ExecuTorch", f"{issue.releases}{only}"),
        ("upstream", link),
        ("what goes wrong", _text(issue.symptom)),
        ("what safe_arm does", _text(issue.we_do) or "nothing yet"),
        ("smallest program", f"`{issue.repro}`" if issue.repro else ""),
        (
            "ready to be sent upstream",
            f"[repro, cause, patch and test](upstream/{name})" if name else "",
        ),
    )
    lines = (f"* {name}: {value}" for name, value in facts if value)
    return "\n".join((f"\n## {issue.id}", _text(issue.title), "", *lines))


def _text(text: str) -> str:
    """Escape what Markdown would take for markup."""
    return "".join(f"\\{each}" if each in "\\`*_<>[]" else each for each in text)


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")
