"""A diagnosis as text: the verdict, the remedies, then the tools, in a table on a terminal, in lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_arm.doctor.diagnosis import Diagnosis
from safe_arm.doctor.finding import EVERY_TARGET, Finding, State
from safe_arm.known_issues import KnownIssue
from safe_arm.report.wrapped_text import wrapped

_COLOUR = {State.OK: "green", State.MISSING: "yellow", State.BROKEN: "red"}
_FIX = "  fix: "
_CPU_WHEEL = (
    "  for torch without CUDA on Linux, first: https://pytorch.org/get-started/locally/"
)


def print_diagnosis(diagnosis: Diagnosis, console: Console, verbose: bool) -> None:
    """Print the verdict, remedies, tools, versions, and known issues.

    Args:
        diagnosis: the diagnosis.
        console: the output; a terminal gets lines broken between words, a file gets them unbroken.
        verbose: with the tools' output, and each known issue on a line of its own.
    """
    colour = "bold green" if diagnosis.ok else "bold red"
    _print_lines(console, [_verdict(diagnosis), *_remedies(diagnosis)], first=colour)
    _print_tools(diagnosis, console, verbose)
    for finding in diagnosis.findings:
        if not finding.needed_by:
            _print_lines(console, _remedy(finding))
    versions = []
    for name, number in diagnosis.versions.items():
        versions.append(f"{name} {number or '-'}")
    lines = [f"versions  {', '.join(versions)}", *_issues(diagnosis, verbose)]
    _print_lines(console, lines)


def _print_lines(console: Console, lines: Iterable[str], *, first: str = "") -> None:
    """Print lines; on a terminal, break the long ones.

    Args:
        console: the output.
        lines: the lines.
        first: the style of the first.
    """
    style = first
    for line in lines:
        text = line
        if console.is_terminal:
            # A command continues behind a backslash.
            end = " \\" if line.startswith(_FIX) else ""
            words = line.lstrip()
            indent = line[: -len(words)]
            parts = wrapped(indent, words, console.width - len(end), "    ")
            text = f"{end}\n".join(parts)
        console.print(Text(text, style=style), soft_wrap=True)
        style = ""


def _verdict(diagnosis: Diagnosis) -> str:
    about = f" for {diagnosis.target}" if diagnosis.target else ""
    blocking = []
    for finding in diagnosis.findings:
        if finding.blocks(diagnosis.target):
            blocking.append(f"{finding.name} is {finding.state.value}")
    if blocking:
        return f"not ok{about}: {', '.join(blocking)}"
    if diagnosis.target is None:
        about = _targets(diagnosis.findings)
    verdict = f"ok{about}"
    names = ", ".join(f"{each.package} {each.version}" for each in diagnosis.untested)
    if names:
        verdict += f"; not tested with {names}"
    if "system" in diagnosis.versions:
        verdict += f"; not tested on {diagnosis.versions['system']}"
    return verdict


def _targets(findings: Sequence[Finding]) -> str:
    """Return the targets whose tools all run, and the tools that the other targets lack."""
    targets = list(EVERY_TARGET)
    lacking = ""
    for finding in findings:
        if finding.state is State.OK or not finding.needed_by:
            continue
        targets = [target for target in targets if target not in finding.needed_by]
        without = ", ".join(finding.needed_by)
        lacking += f"; not for {without}: {finding.name} is {finding.state.value}"
    return f" for {', '.join(targets)}{lacking}"


def _remedies(diagnosis: Diagnosis) -> list[str]:
    remedies: list[str] = []
    for finding in diagnosis.findings:
        if finding.needed_by:
            remedies += _remedy(finding)
    for each in diagnosis.untested:
        release = f"{each.package} {each.version}"
        remedies.append(f"  {release} is outside what is tested, {each.tested}")
        remedies.append(f"{_FIX}{each.fix}")
    lines = []
    for line in dict.fromkeys(remedies):  # One command may fix two.
        if line.startswith(_FIX) and " torch==" in line and _CPU_WHEEL not in lines:
            lines.append(_CPU_WHEEL)
        lines.append(line)
    return lines


def _remedy(finding: Finding) -> Iterator[str]:
    if finding.fix or finding.state is not State.OK:
        yield f"  {finding.name}: {finding.detail}"
    if finding.fix:
        yield f"{_FIX}{finding.fix}"


def _print_tools(diagnosis: Diagnosis, console: Console, verbose: bool) -> None:
    if console.is_terminal:
        table = Table("tool", "state", "version", "needed for", box=box.SIMPLE_HEAD)
        for finding in diagnosis.findings:
            table.add_row(
                finding.name,
                Text(finding.state.value, _COLOUR[finding.state]),
                Text(finding.version or "-"),
                Text(finding.needed_for),
            )
        console.print(table)
    for finding in diagnosis.findings:
        if not console.is_terminal:
            state = f"{finding.name:22}{finding.state.value:9}"
            line = f"{state}{finding.version or '-':12}{finding.needed_for}"
            _print_lines(console, [line])
        if not verbose:
            continue
        lines = [f"  | {line}" for line in finding.output.splitlines()]
        if finding.detail and not list(_remedy(finding)):
            lines.insert(0, f"  {finding.name}: {finding.detail}")
        _print_lines(console, lines)


def _issues(diagnosis: Diagnosis, verbose: bool) -> Iterator[str]:
    here = diagnosis.versions["executorch"]
    if not here:
        return
    count = f"{len(diagnosis.issues)} known issues affect ExecuTorch {here}"
    if not verbose:
        yield f"{count}: safe-arm issues --affecting {here}"
        return
    yield f"{count}; safe-arm issues ID shows one in full"
    by_remedy: dict[str, list[KnownIssue]] = {}
    for issue in diagnosis.issues:
        remedy = issue.we_do or "does nothing yet"
        by_remedy.setdefault(remedy, []).append(issue)
    for remedy, issues in by_remedy.items():
        yield f"  {remedy}"
        for issue in issues:
            yield f"    {issue.id}: {issue.title}"
