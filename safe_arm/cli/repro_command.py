"""``safe-arm repro``: a script for everything refused or demoted, to run and to send upstream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from safe_arm.cli.executorch_command import ExecuTorchCommand
from safe_arm.cli.lowering_command import lowered
from safe_arm.cli.options import FILE, MODEL, VERBOSE, lowering_options, request_of
from safe_arm.cli.output_file import check_folder
from safe_arm.core.plain_reasons import plain

if TYPE_CHECKING:
    from safe_arm.core.record import Report


@click.command(cls=ExecuTorchCommand)
@MODEL
@lowering_options
@click.option(
    "-o",
    "--output",
    "directory",
    type=FILE,
    required=True,
    metavar="DIR",
    help="Directory for the scripts.",
)
@VERBOSE
def repro(directory: Path, verbose: bool, **options: Any) -> None:
    """Write a script for each refused or demoted part of MODEL.pt2.

    Each script holds one part with its weights and uses only stock ExecuTorch; safe_arm is not needed to run it. It
    exits with 0 if stock fails on the part or computes something other than the quantised graph, and with 1 if not.
    The options are those of safe-arm export.

    \b
    Exit status:
        0  done, even if nothing is refused or demoted
        1  the model cannot be lowered
        2  bad input
      130  interrupted
    """
    check_folder(directory, "-o")
    request = request_of({**options, "repro_dir": directory})
    with lowered(request, verbose) as reports:
        scripts = {} if request.quiet else _scripts(reports[request.policy])
        if not scripts and not request.quiet:
            click.echo("nothing is refused by a check or demoted; no script is written")
        for path, what in scripts.items():
            click.echo(f"{path}: {what}")


def _scripts(report: Report) -> dict[str, str]:
    """Return by script the operators that it repeats, and why they are fallbacks."""
    scripts: dict[str, str] = {}
    for path in dict.fromkeys(v.repro for v in report.fallbacks if v.repro):
        verdicts = [v for v in report.fallbacks if v.repro == path]
        scripts[path] = (
            f"{', '.join(dict.fromkeys(v.op for v in verdicts))}: {plain(verdicts[0].reason)}"
        )
    return scripts
