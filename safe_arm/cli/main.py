"""The ``safe-arm`` command: its subcommands, and how an error ends."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

import click

from safe_arm import __version__
from safe_arm.cli.check_command import check
from safe_arm.cli.doctor_command import doctor
from safe_arm.cli.exit_status import BAD_INPUT, FAILED, INTERRUPTED
from safe_arm.cli.export_command import export
from safe_arm.cli.interrupt import end_by_status, listen
from safe_arm.cli.issues_command import issues
from safe_arm.cli.repro_command import repro
from safe_arm.cli.run_command import run
from safe_arm.cli.targets import accept
from safe_arm.cli.tune_command import tune
from safe_arm.cli.verify_pte_command import verify_pte
from safe_arm.core.errors import SafeArmError, UsageError

#: Every subcommand, in the order ``--help`` lists them.
COMMANDS: tuple[click.Command, ...] = (
    doctor,
    check,
    export,
    verify_pte,
    tune,
    run,
    repro,
    issues,
)


class OneLineErrors(click.Group):
    """A group whose errors are one line on stderr: status 2 for what the user can fix, 1 for the rest."""

    def main(self, *args: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **kwargs)  # type: ignore[call-overload]
        try:
            status = super().main(*args, standalone_mode=False, **kwargs)  # type: ignore[call-overload]
        except click.NoSuchOption as error:
            options = error.possibilities or []
            begins = [each for each in options if each.startswith(error.option_name)]
            if begins:
                options[:] = begins
            status = _tell(error.format_message(), error.exit_code)
        except click.ClickException as error:
            status = _tell(error.format_message(), error.exit_code)
        except SafeArmError as error:
            is_bad_input = isinstance(error, UsageError)
            status = _tell(str(error), BAD_INPUT if is_bad_input else FAILED)
        end_by_status()
        sys.exit(status if isinstance(status, int) else 0)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing:
            accept("command", args[0], tuple(self.commands))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            # The argument is the text of a command that has written files.
            words = ["Interrupted", *map(str, interrupt.args)]
            click.echo(f"{'; '.join(words)}.", err=True)
            ctx.exit(INTERRUPTED)


def _tell(message: str, status: int) -> int:
    click.echo(f"Error: {' '.join(message.split())}", err=True)
    return status


@click.group(
    cls=OneLineErrors,
    commands={command.name or "": command for command in COMMANDS},
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="safe-arm")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Export PyTorch models to Arm Ethos-U, VGF or TOSA, and verify each delegate.

    \b
      safe-arm check model.pt2 --target ethos-u55-128 --calibrate random
    """
    ctx.obj = run_job
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run_job(arguments: Sequence[str]) -> None:
    """Run the command line of one of many programs in this process, and exit with its status."""
    cli(list(arguments), prog_name="safe-arm")


def main() -> None:
    """Run the command line, and exit with one of the statuses of ``exit_status``, or 0."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A user's source line may not fit the terminal's encoding.
            stream.reconfigure(errors="backslashreplace")
    listen()
    cli(prog_name="safe-arm")
