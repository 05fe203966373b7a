"""``safe-arm doctor``: what is installed, whether it runs, and what to fix."""

from __future__ import annotations

import json
import sys

import click

from safe_arm.cli.option_types import OneOf
from safe_arm.cli.options import VERBOSE
from safe_arm.cli.targets import TARGETS

NOT_OK = 1


@click.command()
@click.option(
    "--target",
    type=OneOf("target", TARGETS),
    metavar="TARGET",
    help=f"Run and list only what this target needs: {', '.join(TARGETS)}.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print everything that was found, as JSON."
)
@VERBOSE
@click.pass_context
def doctor(
    ctx: click.Context, target: str | None, as_json: bool, verbose: bool
) -> None:
    """Report what is installed, whether it runs, and what to fix.

    The verdict comes first, then the commands that fix what is missing or broken. ExecuTorch's Arm backend is
    imported, the TOSA reference model computes a graph of one operator, Vela and model-converter compile it, and
    Vulkan runs it if Vulkan is installed. --target limits this to what one target needs. Versions outside the tested
    ones are named, but do not change the verdict. The last line counts the known issues of the installed ExecuTorch;
    -v lists them, with what safe_arm does about each.

    \b
    Exit status:
        0  ok
        1  not ok: something that every target needs is missing or broken, or
           something that one target needs is broken; with --target, something
           that this target needs is missing or broken
        2  bad input
    Vulkan is optional and never causes status 1.
    """
    from rich.console import Console

    from safe_arm.doctor.diagnosis import examine
    from safe_arm.doctor.diagnosis_text import print_diagnosis

    with Console(stderr=True).status("") as status:
        diagnosis = examine(target, lambda name: status.update(f"run {name}"))
    if as_json:
        click.echo(json.dumps(diagnosis.as_json(verbose), indent=2))
    else:
        print_diagnosis(diagnosis, Console(file=sys.stdout, highlight=False), verbose)
    ctx.exit(0 if diagnosis.ok else NOT_OK)
