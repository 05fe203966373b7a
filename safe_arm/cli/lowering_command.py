"""What every command that lowers a model does: check the request, then work quietly, and fail in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from safe_arm._compat.installation import unimportable
from safe_arm.cli.interrupt import telling_what_is_written
from safe_arm.cli.request import Request
from safe_arm.core.errors import SafeArmError, UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from torch.export import ExportedProgram

    from safe_arm.cli.progress import Steps
    from safe_arm.cli.quantising import Samples
    from safe_arm.cli.request_check import Checked
    from safe_arm.core.record import Report

T = TypeVar("T")


@contextmanager
def lowered(request: Request, verbose: bool) -> Iterator[dict[str, Report]]:
    """Do what was asked for, quietly unless ``verbose``, and yield the reports by policy, to be printed to stdout.

    Args:
        request: what was asked for.
        verbose: show what the libraries print, and the traceback of a failure.

    Raises:
        UsageError: something the user can mend.
        SafeArmError: anything else that went wrong, in one line; nobody reads stdout, or the disk behind it is full.
        KeyboardInterrupt: it was interrupted; the text says what is written.
    """
    if verbose and request.quiet:
        raise UsageError("--quiet and --verbose exclude each other; give one of them")
    from safe_arm.cli.request_check import check_request

    with telling_what_is_written(
        filter(None, (request.output, *request.reports, request.repro_dir))
    ):
        reports = _carry_out(request, check_request(request), verbose, _lower(request))
        try:
            yield reports
        except OSError as error:
            written = f"{request.output} is written, but not the summary"
            ended = written if request.output else "the summary cannot be written"
            raise SafeArmError(f"{ended}: {error.strerror or error}") from error


def carried_out(
    request: Request, verbose: bool, places: Iterable[Path], do: Callable[..., T]
) -> T:
    """Do something with the program and the samples of a request, quietly unless ``verbose``; return what it returns.

    Args:
        request: what was asked for.
        verbose: show what the libraries print, and the traceback of a failure.
        places: the files that may be written.
        do: called with what checking the request found, the program, the samples and the steps to show.

    Raises:
        UsageError, SafeArmError, KeyboardInterrupt: as ``lowered``.
    """
    if verbose and request.quiet:
        raise UsageError("--quiet and --verbose exclude each other; give one of them")
    from safe_arm.cli.request_check import check_request

    with telling_what_is_written(places):
        return _carry_out(request, check_request(request), verbose, do)


def _lower(request: Request) -> Callable[..., dict[str, Report]]:
    def run(
        checked: Checked,
        program: ExportedProgram,
        samples: Samples | None,
        steps: Steps,
    ) -> dict[str, Report]:
        from safe_arm.cli import pipeline

        return pipeline.run(request, program, samples, checked.kept_float, steps)

    return run


def _carry_out(
    request: Request, checked: Checked, verbose: bool, do: Callable[..., T]
) -> T:
    """Load, do it, and turn what goes wrong into one line."""
    from safe_arm.cli.progress import Steps
    from safe_arm.cli.quiet import quiet
    from safe_arm.verification.stdout_filter import serializer_warnings_shown

    with quiet(not verbose) as stream, serializer_warnings_shown(verbose):
        steps = Steps(stream, quiet=request.quiet)
        _note(request, steps)
        try:
            with steps.step(f"load {request.model.name}", announce=False):
                from safe_arm.cli import pipeline

                program = pipeline.load(request.model)
                samples = pipeline.samples_for(checked, program, steps)
            return do(checked, program, samples, steps)
        except UsageError:
            raise
        except (Exception, SystemExit) as error:  # Vela ends with sys.exit
            if verbose:
                import traceback

                traceback.print_exc()
            raise _failure(steps.current, error, verbose) from error


def _note(request: Request, steps: Steps) -> None:
    """Say what the user should know before the work: data that is not used."""
    asked = request.quantisation
    given = {
        "--calibrate": asked.given,
        "--per-tensor": asked.per_tensor,
        "--keep-float": asked.keep_float,
    }
    unused = (
        []
        if request.profile.integer
        else [name for name, value in given.items() if value]
    )
    if unused:
        verb = "is" if len(unused) == 1 else "are"
        steps.note(
            f"Note: {request.profile.text} is a float profile; {', '.join(unused)} {verb} not used"
        )


def _failure(step: str, error: BaseException, verbose: bool) -> SafeArmError:
    if isinstance(error, ImportError):
        return unimportable(error)
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else f"{text[:300]}..."
    more = "see the traceback above" if verbose else "run with -v for the traceback"
    return SafeArmError(f"cannot {step}: {type(error).__name__}: {text}; {more}")


def print_summary(request: Request, report: Report) -> None:
    """Print to stdout what an export came to: what was delegated and what was not."""
    from safe_arm.report.terminal import print_report

    print_report(report, _console(request))


def print_comparison(request: Request, reports: Mapping[str, Report]) -> None:
    """Print to stdout what a request would come to under each policy, and the one asked for in detail."""
    from safe_arm.report.terminal import (
        print_details,
        print_recommendation,
        print_side_by_side,
    )

    console = _console(request)
    print_side_by_side(reports, console)
    print_details(reports[request.policy], console)
    print_recommendation(reports, request.policy, console)


def _console(request: Request) -> Console:
    """Return the console on stdout, a line about the request printed."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    about = request.output or request.model
    policy = f"--non-fuseable {request.policy}"
    console.print(
        Text(
            f"{about}: {request.target}, {request.profile.text}, {policy}", style="bold"
        ),
        soft_wrap=True,
    )
    return console
