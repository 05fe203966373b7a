"""A diagnosis as text: tables on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_arm.doctor.diagnosis import Diagnosis
from safe_arm.doctor.finding import Finding, State

_COLOUR = {State.OK: "green", State.MISSING: "yellow", State.BROKEN: "red"}


def print_diagnosis(diagnosis: Diagnosis, console: Console, *, verbose: bool = False) -> None:
    """Print versions, tools, what to do, and known issues.

    Args:
        diagnosis: what was found.
        console: where to; tables if it is a terminal, else lines that are never wrapped.
        verbose: with what the tools printed, and each known issue on a line of its own.
    """
    versions = ", ".join(f"{name} {number or '-'}" for name, number in diagnosis.versions.items())
    console.print(Text(f"versions  {versions}"), soft_wrap=True)
    _print_tools(diagnosis, console, verbose)
    _print_issues(diagnosis, console, verbose)
    console.print(Text(_verdict(diagnosis), style="bold"), soft_wrap=True)


def _print_tools(diagnosis: Diagnosis, console: Console, verbose: bool) -> None:
    if console.is_terminal:
        table = Table("tool", "state", "version", "needed for", box=box.SIMPLE_HEAD)
        for f in diagnosis.findings:
            table.add_row(f.name, Text(f.state.value, _COLOUR[f.state]), Text(f.version or "-"), Text(f.needed_for))
        console.print(table)
    for f in diagnosis.findings:
        if not console.is_terminal:
            line = f"{f.name:22}{f.state.value:9}{f.version or '-':12}{f.needed_for}"
            console.print(Text(line), soft_wrap=True)
        for line in _details(f, verbose):
            console.print(Text(line), soft_wrap=True)


def _details(finding: Finding, verbose: bool) -> Iterator[str]:
    if finding.detail and (verbose or finding.fix or finding.state is not State.OK):
        yield f"  {finding.name}: {finding.detail}"
    if finding.fix:
        yield f"  fix: {finding.fix}"
    if verbose:
        yield from (f"  | {line}" for line in finding.output.splitlines())


def _print_issues(diagnosis: Diagnosis, console: Console, verbose: bool) -> None:
    here = diagnosis.versions["executorch"]
    if not here:
        return
    console.print(
        Text(f"{len(diagnosis.issues)} known issues affect ExecuTorch {here}; safe-arm issues ID tells all about one"),
        soft_wrap=True,
    )
    by_remedy: dict[str, list[str]] = {}
    for issue in diagnosis.issues:
        named = f"{issue.id}: {issue.title}" if verbose else issue.id
        by_remedy.setdefault(issue.we_do or "we do nothing about it yet", []).append(named)
    for remedy, listed in by_remedy.items():
        lines = [f"  {remedy}", *(f"    {each}" for each in listed)] if verbose else [f"  {_few(listed)}: {remedy}"]
        console.print(Text("\n".join(lines)), soft_wrap=not console.is_terminal)


def _few(ids: list[str]) -> str:
    return ", ".join(ids) if len(ids) <= 4 else f"{', '.join(ids[:3])} and {len(ids) - 3} more"


def _verdict(diagnosis: Diagnosis) -> str:
    about = f" for {diagnosis.target}" if diagnosis.target else ""
    if diagnosis.ok:
        return f"ok{about}"
    return f"not ok{about}: {', '.join(f.name for f in diagnosis.findings if f.blocks(diagnosis.target))}"
