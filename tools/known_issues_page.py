"""The known issues as a page of the docs.

python tools/known_issues_page.py [--write]

Prints the page; with ``--write`` it goes to docs/known-issues.md.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from safe_arm.known_issues import KnownIssue, known_issues
from safe_arm.known_issues.upstream_pages import upstream_pages

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PAGE = Path(__file__).resolve().parents[1] / "docs" / "known-issues.md"
HEAD = """\
# Known issues

These bugs can affect an export to Arm. They are in ExecuTorch's Arm backend, in torchao (the quantisation library), and
in what runs next to the backend, such as XNNPACK and the portable kernels. A report names them by id. A release is
listed if the bug was seen there; earlier releases were not always tried. `python tools/known_issues_page.py --write`
writes this page from `safe_arm/known_issues/issues.json`.
"""

#: By the first letter of an id, the heading of its table; the rest has the last one.
KINDS = {
    "S": "Wrong numbers, or delegates that are lost",
    "T": "Quantisation and training that change the net, or fail",
    "C": "Lowering that crashes, or leaves an operator on the CPU",
    "": "Partitioning, dynamic sizes, kernels, time and the rest",
}


def page(issues: Sequence[KnownIssue]) -> str:
    """Return a Markdown page: tables of the issues, then a section about each."""
    lines = [HEAD.rstrip()]
    for letter, heading in KINDS.items():
        lines += [f"\n## {heading}", "", "| id | ExecuTorch | what happens |", "| --- | --- | --- |"]
        for issue in issues:
            if _kind(issue) == letter:
                link = f"[{issue.id}](#{issue.id.lower()})"
                lines.append(f"| {link} | {issue.releases} | {_cell(issue.title)} |")
    pages = upstream_pages()
    lines.append("\n## Each in detail")
    for issue in issues:
        lines.append(_section(issue, pages))
    return "\n".join(lines)


def _kind(issue: KnownIssue) -> str:
    letter = issue.id[0]
    return letter if letter in KINDS else ""


def _section(issue: KnownIssue, pages: Mapping[str, Traversable]) -> str:
    lines = [f"\n### {issue.id}", _text(issue.title), ""]
    releases = issue.releases
    if issue.only_with:
        releases += f", only with {issue.only_with}"
    lines.append(f"* ExecuTorch: {releases}")
    if issue.upstream.rpartition("#")[2]:
        address = f"https://github.com/{issue.upstream.replace('#', '/issues/')}"
        lines.append(f"* upstream: [{issue.upstream}]({address})")
    if issue.symptom:
        lines.append(f"* what goes wrong: {_text(issue.symptom)}")
    lines.append(f"* what safe_arm does: {_text(issue.we_do) or 'nothing yet'}")
    if issue.repro:
        lines.append(f"* smallest program: `{issue.repro}`")
    if issue.id in pages:
        link = f"[repro, cause, patch and test](upstream/{pages[issue.id].name})"
        lines.append(f"* ready to be sent upstream: {link}")
    return "\n".join(lines)


def _text(text: str) -> str:
    """Escape characters that Markdown takes for markup; what stands between backticks is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return _escaped(text)
    plain, codes = parts[::2], [f"`{part}`" for part in parts[1::2]]
    return "".join(_escaped(before) + code for before, code in zip(plain, [*codes, ""], strict=True))


def _escaped(text: str) -> str:
    return "".join(f"\\{each}" if each in "\\`*_<>[]" else each for each in text)


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")


if __name__ == "__main__":
    text = page(known_issues())
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(text)
    else:
        print(text)
