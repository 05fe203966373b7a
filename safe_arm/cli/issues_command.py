"""``safe-arm issues``: the known bugs of the backend, and which of them a release has."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from safe_arm.cli.spelling import similar
from safe_arm.core.errors import UsageError
from safe_arm.report.wrapped_text import wrapped

if TYPE_CHECKING:
    from safe_arm.known_issues import KnownIssue


@click.command()
@click.argument("identifier", required=False, metavar="[ID]")
@click.option(
    "--affecting",
    metavar="VERSION",
    help="Only issues that affect this release of ExecuTorch, such as 1.4.1.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option(
    "--upstream",
    is_flag=True,
    help="Print the report on ID that is ready to be sent upstream: repro, cause, patch and test.",
)
def issues(
    identifier: str | None,
    affecting: str | None,
    as_json: bool,
    upstream: bool,
) -> None:
    """List the known bugs of ExecuTorch's Arm backend.

    With ID, show everything about one of them. A report names the issue behind a refusal by its id. An issue is
    listed for the releases in which it was seen; earlier releases were not always tried.

    \b
    Exit status:
        0  listed, even if nothing is known
        2  an unknown id, an id without a page for --upstream, or an invalid
           version
    """
    if as_json and upstream:
        raise UsageError("--json and --upstream exclude each other; give one of them")
    chosen = _chosen(identifier, affecting)
    if upstream:
        _print_page(identifier)
    elif as_json:
        click.echo(json.dumps([asdict(issue) for issue in chosen], indent=2))
    elif identifier:
        _print_whole(chosen, identifier, affecting)
    else:
        _print_table(chosen)
        click.echo(_footer(len(chosen), affecting))


def _print_page(identifier: str | None) -> None:
    from safe_arm.known_issues.upstream_pages import page_text, upstream_pages

    pages = upstream_pages()
    if identifier not in pages:
        asked = "--upstream needs the ID of an issue"
        if identifier:
            asked = f"there is no page about {identifier}"
        raise UsageError(
            f"{asked}; there are pages about {', '.join(pages)}: safe-arm issues --upstream {next(iter(pages))}"
        )
    click.echo(page_text(pages[identifier]), nl=False)


def _footer(listed: int, affecting: str | None) -> str:
    from safe_arm.known_issues import known_issues, release_of

    details = "; safe-arm issues ID has the details of one"
    if affecting is None:
        return f"{listed} known issues{details}"
    known = known_issues()
    line = f"{listed} of {len(known)} known issues affect ExecuTorch {affecting}"
    newest = max(release_of(issue.affects[0]) for issue in known)
    if release_of(affecting) > newest:
        line += f", if none is fixed since {newest}, the newest that they were seen on"
    later = sum(issue.seen_after(release_of(affecting)) for issue in known)
    if later:
        line += (
            f" ({later} were seen on later releases only, and may be older than that)"
        )
    return line + details


def _chosen(identifier: str | None, affecting: str | None) -> list[KnownIssue]:
    from safe_arm.known_issues import known_issues, release_of

    everything = known_issues()
    ids = [issue.id for issue in everything]
    if identifier is not None and identifier not in ids:
        hint = ""
        if alike := similar(identifier, ids):
            hint = f"similar: {', '.join(alike)}; "
        raise UsageError(
            f"issue {identifier!r} is not known; {hint}safe-arm issues lists all {len(ids)}"
        )
    chosen = [issue for issue in everything if identifier in (None, issue.id)]
    if affecting is None:
        return chosen
    release = release_of(affecting)
    return [issue for issue in chosen if issue.bites(release)]


def _print_whole(
    chosen: list[KnownIssue], identifier: str, affecting: str | None
) -> None:
    if not chosen:
        click.echo(f"{identifier} does not affect ExecuTorch {affecting}")
    for issue in chosen:
        only = f", only with {issue.only_with}" if issue.only_with else ""
        click.echo(_wrapped(f"{issue.id}: ", issue.title))
        for name, value in (
            ("ExecuTorch", f"{issue.releases}{only}"),
            ("upstream", issue.upstream or "not reported, as far as we know"),
            ("what goes wrong", issue.symptom),
            ("safe_arm", issue.we_do or "does nothing yet"),
            ("smallest program", issue.repro),
        ):
            click.echo(_wrapped(f"  {name:18}", value))


def _print_table(chosen: Sequence[KnownIssue]) -> None:
    """Print an entry of whole words for each issue on a terminal, else a line that is never wrapped."""
    if sys.stdout.isatty():
        for issue in chosen:
            click.echo(
                f"{click.style(issue.id, bold=True)}  {issue.releases}\n{_wrapped('  ', issue.title)}"
            )
        return
    columns = [issue.id for issue in chosen], [issue.releases for issue in chosen]
    ids, releases = (max(map(len, column), default=0) for column in columns)
    for issue in chosen:
        click.echo(f"{issue.id:{ids}}  {issue.releases:{releases}}  {issue.title}")


def _wrapped(name: str, text: str) -> str:
    """Return a name with a text beside it, in lines of whole words on a terminal."""
    if not sys.stdout.isatty():
        return f"{name}{text}"
    return "\n".join(wrapped(name, text, shutil.get_terminal_size().columns))
