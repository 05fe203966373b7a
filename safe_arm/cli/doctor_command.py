"""``safe-arm doctor``: what is installed here, whether it runs, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from safe_arm.cli.choice import OneOf
from safe_arm.cli.options import VERBOSE
from safe_arm.cli.targets import TARGETS

NOT_OK = 1


@click.command()
@click.option(
    "--target",
    type=OneOf("target", TARGETS),
    metavar="TARGET",
    help=f"Run and list what one target needs: {', '.join(TARGETS)}.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print all that was found as JSON."
)
@VERBOSE
@click.pass_context
def doctor(
    ctx: click.Context, target: str | None, as_json: bool, verbose: bool
) -> None:
    """Run everything safe-arm stands on, and say what is missing or broken and the command that mends it.

    The verdict comes first, then the commands. ExecuTorch's Arm backend is imported, the TOSA reference model computes
    a graph of one operator, Vela and model-converter compile it, and Vulkan runs it if it is there; with --target only
    what that target needs. Versions outside what is tested are named, and do not make it not ok. The known issues of
    the installed ExecuTorch follow, with what safe-arm does about each. -v shows what the tools print (a torchao
    extension that does not load, for one).

    \b
    Exit status: 0 ok
                 1 not ok: something that every target needs is missing or broken, or something that one target
                   needs is broken; with --target, anything that target needs is missing or broken
                 2 wrong use
    Vulkan is optional: it never makes the status 1.
    """
    from safe_arm.doctor.diagnosis import examine

    with _telling() as step:
        diagnosis = examine(target, step)
    if as_json:
        import json

        click.echo(json.dumps(diagnosis.as_json(output=verbose), indent=2))
    else:
        from rich.console import Console

        from safe_arm.doctor.diagnosis_text import print_diagnosis

        print_diagnosis(
            diagnosis, Console(file=sys.stdout, highlight=False), verbose=verbose
        )
    ctx.exit(0 if diagnosis.ok else NOT_OK)


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """Yield a function for the name of each tool, which a terminal shows with a spinner on stderr."""
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield lambda name: status.update(f"run {name}")
