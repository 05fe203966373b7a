"""``safe-arm run``: an ExecuTorch script, with safe_arm's classes in place of Arm's."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from safe_arm._compat.installation import executorch_imported
from safe_arm.cli.executorch_command import ExecuTorchCommand
from safe_arm.cli.exit_status import FAILED, NOTHING_DELEGATED
from safe_arm.cli.options import (
    ALLOW_EMPTY,
    MIN_MACS,
    NON_FUSEABLE,
    QUIET,
    REPORT,
    TOLERANCE,
    VERIFY,
    check_verification,
)
from safe_arm.cli.outcome import end_if_nothing_delegated
from safe_arm.cli.output_file import check_output, write_output
from safe_arm.cli.project_defaults import ISOLATED, note_overridden
from safe_arm.core.errors import SafeArmError, UsageError
from safe_arm.report.formats import format_of

if TYPE_CHECKING:
    from safe_arm.cli.adoption import Adopted
    from safe_arm.core.record import Report


@click.command(
    cls=ExecuTorchCommand,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "-m", "module", is_flag=True, help="SCRIPT is the name of a module, not a file."
)
@NON_FUSEABLE
@MIN_MACS
@VERIFY
@TOLERANCE
@REPORT
@ALLOW_EMPTY
@QUIET
@ISOLATED
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(
    ctx: click.Context,
    script: str,
    arguments: tuple[str, ...],
    module: bool,
    reports: tuple[Path, ...],
    tolerance: int,
    allow_empty: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Run an ExecuTorch script with safe_arm's classes.

    Each Arm partitioner and quantiser that SCRIPT creates becomes safe_arm's, whether SCRIPT calls the class, a
    subclass of its own or one of ExecuTorch's factories:

    \b
    safe-arm run -m executorch.backends.arm.scripts.aot_arm_compiler --model_name=model.py --delegate --quantize

    Put safe-arm's options before SCRIPT; ARGUMENTS are the script's. Every delegate is verified, and stderr gets a
    summary of each partitioned program.

    \b
    Exit status:
      the script's, if it is not 0
        0  the script succeeded
        2  bad input
        3  the script makes no Arm partitioner, delegates nothing, or delegates
           something without safe_arm
    """
    _check_script(script, module)
    for index, report in enumerate(reports):
        check_output(report, (), "--report", reports[:index])
        format_of(report)
    check_verification(tolerance, options["non_fuseable"], options["verify"])
    if options["verify"]:
        from safe_arm.cli.required_tools import check_reference_model

        check_reference_model()
    if not quiet:
        note_overridden()
    with executorch_imported():
        from rich.console import Console

        from safe_arm.cli.adoption import adopting
        from safe_arm.report.terminal import print_report

    with adopting({**options, "verify_tolerance": tolerance}) as adopted:
        _execute(script, arguments, module)
    done = [each.report for each in adopted.partitioners if each.report is not None]
    if not quiet:
        for each in done:
            print_report(each, Console(stderr=True))
    for path in _written(done, reports, script):
        if not quiet:
            click.echo(f"write {path}", err=True)
    _check_reached(ctx, script, adopted, allow_empty)
    if adopted.partitioners:
        end_if_nothing_delegated(ctx, done, allow_empty)


def _check_reached(
    ctx: click.Context, script: str, adopted: Adopted, allow_empty: bool
) -> None:
    """End the command with status 3 if the script has partitioners that are not ours, or none at all."""
    error = ""
    if adopted.left_stock:
        names = ", ".join(adopted.left_stock)
        error = (
            f"{script} partitions with {names}, which safe-arm run cannot replace, so what it delegates is not"
            f" verified; derive {names} from safe_arm.SafeArmPartitioner"
        )
    elif not adopted.partitioners and not allow_empty:
        error = (
            f"{script} made no Arm partitioner in this process, so nothing is delegated or verified; --allow-empty"
            " accepts it"
        )
    if error:
        click.echo(f"Error: {error}", err=True)
        ctx.exit(NOTHING_DELEGATED)


def _check_script(script: str, module: bool) -> None:
    """Check that the script exists; a module is looked for in the current directory first, as by ``python -m``."""
    if module and not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.getcwd())
    if not module and not Path(script).is_file():
        raise UsageError(
            f"there is no file {script}; for a module put -m before its name"
        )
    # A package above it may not exist either.
    with suppress(ModuleNotFoundError):
        if not module or find_spec(script) is not None:
            return
    raise UsageError(f"there is no module {script}; leave -m out for a file")


def _execute(script: str, arguments: tuple[str, ...], module: bool) -> None:
    """Run a script to its end."""
    sys.argv = [script, *arguments]
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(script).resolve().parent))
            runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    except SafeArmError:
        raise
    except Exception as error:
        # As the interpreter ends a script, without the frames of the command before it.
        traceback = error.__traceback__
        before = (__file__, runpy.__file__, "<frozen runpy>")
        while traceback and traceback.tb_frame.f_code.co_filename in before:
            traceback = traceback.tb_next
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        sys.exit(FAILED)


def _written(
    reports: list[Report], paths: tuple[Path, ...], title: str
) -> Iterator[Path]:
    """Write the reports, with a number in the names from the second program on, and yield each name."""
    from safe_arm.report.files import rendered

    for path in paths:
        suffix = format_of(path)
        for index, report in enumerate(reports):
            own = path
            if index:
                stem = path.name[: -len(suffix)]
                ending = path.name[-len(suffix) :]
                own = path.with_name(f"{stem}-{index + 1}{ending}")
            write_output(own, rendered(report, own, title))
            yield own
