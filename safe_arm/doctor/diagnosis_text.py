"""A diagnosis as text: the verdict, what to do about it, then what was run; a table on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from safe_arm.doctor.diagnosis import Diagnosis
from safe_arm.doctor.finding import EVERY_TARGET, Finding, State

_COLOUR = {State.OK: "green", State.MISSING: "yellow", State.BROKEN: "red"}
_FIX = "  fix: "
_CPU_WHEEL = (
    "for torch without CUDA on Linux, first: https://pytorch.org/get-started/locally/"
)


def print_diagnosis(
    diagnosis: Diagnosis, console: Console, *, verbose: bool = False
) -> None:
    """Print the verdict, remedies, tools, versions, and known issues.

    Args:
        diagnosis: what was found.
        console: where to; on a terminal lines are broken between words, elsewhere they are never broken.
        verbose: with what the tools printed, and each known issue on a line of its own.
    """
    colour = "bold green" if diagnosis.ok else "bold red"
    _print_lines(console, [_verdict(diagnosis), *_remedies(diagnosis)], first=colour)
    _print_tools(diagnosis, console, verbose)
    _print_lines(
        console,
        (line for f in diagnosis.findings if not f.needed_by for line in _remedy(f)),
    )
    versions = ", ".join(
        f"{name} {number or '-'}" for name, number in diagnosis.versions.items()
    )
    _print_lines(console, [f"versions  {versions}", *_issues(diagnosis, verbose)])


def _print_lines(console: Console, lines: Iterable[str], *, first: str = "") -> None:
    """Print lines, on a terminal no longer than it is wide; a command that is goes on behind a backslash.

    Args:
        console: where to.
        lines: what to print.
        first: the style of the first.
    """
    for position, line in enumerate(lines):
        broken = [line]
        if console.is_terminal:
            indent, end = (
                " " * (len(line) - len(line.lstrip()) + 4),
                " \\" if line.startswith(_FIX) else "",
            )
            broken = wrap(
                line,
                console.width - len(end),
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            broken = [*(f"{each}{end}" for each in broken[:-1]), broken[-1]]
        console.print(
            Text("\n".join(broken), style="" if position else first), soft_wrap=True
        )


def _verdict(diagnosis: Diagnosis) -> str:
    about = f" for {diagnosis.target}" if diagnosis.target else ""
    if blocking := [f for f in diagnosis.findings if f.blocks(diagnosis.target)]:
        return f"not ok{about}: {', '.join(f'{f.name} is {f.state.value}' for f in blocking)}"
    if diagnosis.target is None:
        missing = [
            f for f in diagnosis.findings if f.state is not State.OK and f.needed_by
        ]
        without = {target for f in missing for target in f.needed_by}
        about = f" for {', '.join(target for target in EVERY_TARGET if target not in without)}"
        about += "".join(
            f"; not for {', '.join(f.needed_by)}: {f.name} is {f.state.value}"
            for f in missing
        )
    names = ", ".join(f"{each.package} {each.version}" for each in diagnosis.untested)
    system = (
        f"; not tested on {diagnosis.versions['system']}"
        if "system" in diagnosis.versions
        else ""
    )
    return (
        f"ok{about}; not tested with {names}{system}" if names else f"ok{about}{system}"
    )


def _remedies(diagnosis: Diagnosis) -> list[str]:
    lines = [
        line
        for finding in diagnosis.findings
        if finding.needed_by
        for line in _remedy(finding)
    ]
    for each in diagnosis.untested:
        lines.append(
            f"  {each.package} {each.version} is outside what is tested, {each.tested}"
        )
        lines.append(f"{_FIX}{each.fix}")
    lines = list(dict.fromkeys(lines))  # one command may mend two
    first = next(
        (
            number
            for number, line in enumerate(lines)
            if line.startswith(_FIX) and " torch==" in line
        ),
        None,
    )
    return (
        lines if first is None else [*lines[:first], f"  {_CPU_WHEEL}", *lines[first:]]
    )


def _remedy(finding: Finding) -> Iterator[str]:
    if finding.fix or finding.state is not State.OK:
        yield f"  {finding.name}: {finding.detail}"
    if finding.fix:
        yield f"{_FIX}{finding.fix}"


def _print_tools(diagnosis: Diagnosis, console: Console, verbose: bool) -> None:
    if console.is_terminal:
        table = Table("tool", "state", "version", "needed for", box=box.SIMPLE_HEAD)
        for f in diagnosis.findings:
            table.add_row(
                f.name,
                Text(f.state.value, _COLOUR[f.state]),
                Text(f.version or "-"),
                Text(f.needed_for),
            )
        console.print(table)
    for f in diagnosis.findings:
        if not console.is_terminal:
            _print_lines(
                console,
                [f"{f.name:22}{f.state.value:9}{f.version or '-':12}{f.needed_for}"],
            )
        if verbose:
            _print_lines(console, _details(f))


def _details(finding: Finding) -> Iterator[str]:
    if (
        finding.detail and not finding.fix and finding.state is State.OK
    ):  # else it is among the remedies
        yield f"  {finding.name}: {finding.detail}"
    yield from (f"  | {line}" for line in finding.output.splitlines())


def _issues(diagnosis: Diagnosis, verbose: bool) -> Iterator[str]:
    here = diagnosis.versions["executorch"]
    if not here:
        return
    count = f"{len(diagnosis.issues)} known issues affect ExecuTorch {here}"
    if diagnosis.target and not verbose:
        yield f"{count}: safe-arm issues --affecting {here}"
        return
    yield f"{count}; safe-arm issues ID tells all about one"
    by_remedy: dict[str, list[str]] = {}
    for issue in diagnosis.issues:
        named = f"{issue.id}: {issue.title}" if verbose else issue.id
        by_remedy.setdefault(issue.we_do or "we do nothing about it yet", []).append(
            named
        )
    for remedy, listed in by_remedy.items():
        yield f"  {remedy}" if verbose else f"  {_few(listed)}: {remedy}"
        yield from (f"    {each}" for each in listed if verbose)


def _few(ids: list[str]) -> str:
    return (
        ", ".join(ids)
        if len(ids) <= 4
        else f"{', '.join(ids[:3])} and {len(ids) - 3} more"
    )
