"""The frame of every command that lowers a model: check the request, work quietly, fail in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from safe_arm._compat.installation import unimportable
from safe_arm.cli.interrupt import telling_what_is_written
from safe_arm.cli.request import Request
from safe_arm.cli.vela_options import with_board
from safe_arm.core.errors import SafeArmError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from safe_arm.cli.progress import Steps
    from safe_arm.cli.quantising import Loaded
    from safe_arm.core.record import Report
    from safe_arm.report.stock_column import StockResult


@contextmanager
def lowered(request: Request, verbose: bool) -> Iterator[dict[str, Report]]:
    """Do what was asked for, quietly unless ``verbose``, and yield the reports by policy, to be printed to stdout.

    Args:
        request: what was asked for.
        verbose: show what the libraries print, and the traceback of a failure.

    Raises:
        UsageError: something the user can fix.
        SafeArmError: anything else that went wrong, in one line; nobody reads stdout, or the disk behind it is full.
        KeyboardInterrupt: it was interrupted; the text says what is written.
    """
    places = [*request.reports]
    for place in (request.output, request.repro_dir):
        if place is not None:
            places.append(place)
    with telling_what_is_written(places):
        with loading(request, verbose) as (loaded, steps):
            from safe_arm.cli import pipeline

            reports = pipeline.run(loaded, steps)
        try:
            yield reports
        except OSError as error:
            missing = "the summary cannot be written"
            if request.output:
                missing = f"{request.output} is written, but not the summary"
            raise SafeArmError(f"{missing}: {error.strerror or error}") from error


@contextmanager
def loading(
    request: Request, verbose: bool, noting: bool = True
) -> Iterator[tuple[Loaded, Steps]]:
    """Check a request, load what it names, and yield that for a block that works quietly unless ``verbose``.

    Args:
        request: what was asked for.
        verbose: show what the libraries print, and the traceback of a failure.
        noting: show the notes about the request and the model; False if they have been shown.

    Raises:
        UsageError: something the user can fix.
        SafeArmError: anything else that went wrong, in the block too, in one line.
    """
    if verbose and request.quiet:
        raise UsageError("--quiet and --verbose exclude each other; give one of them")
    from safe_arm.cli.progress import Steps
    from safe_arm.cli.quiet import quiet
    from safe_arm.cli.request_check import check_request
    from safe_arm.verification.stdout_filter import serializer_warnings_shown

    checked = check_request(request)
    with quiet(not verbose) as stream, serializer_warnings_shown(verbose):
        steps = Steps(stream, quiet=request.quiet)
        loading_steps = steps
        if not noting:
            loading_steps = Steps(stream, quiet=True)
        _note(request, loading_steps)
        try:
            with loading_steps.step(f"load {request.model.name}", announce=False):
                from safe_arm.cli import pipeline

                loaded = pipeline.loaded(request, checked, loading_steps)
            yield loaded, steps
        except UsageError:
            raise
        except (Exception, SystemExit) as error:  # Vela ends with sys.exit
            if verbose:
                import traceback

                traceback.print_exc()
            raise _failure(steps.current, error, verbose) from error


def _note(request: Request, steps: Steps) -> None:
    """Say before the work which options are not used."""
    if request.profile.integer:
        return
    asked, unused = request.quantisation, []
    if asked.given:
        unused.append("--calibrate")
    if asked.per_tensor:
        unused.append("--per-tensor")
    if asked.keep_float:
        unused.append("--keep-float")
    if unused:
        verb = "is" if len(unused) == 1 else "are"
        steps.note(
            f"Note: {request.profile.text} is a float profile; {', '.join(unused)} {verb} not used"
        )


def _failure(step: str, error: BaseException, verbose: bool) -> SafeArmError:
    if isinstance(error, ImportError):
        return unimportable(error)
    text = " ".join(str(error).split())
    if len(text) > 300:
        text = f"{text[:300]}..."
    more = "run with -v for the traceback"
    if verbose:
        more = "see the traceback above"
    return SafeArmError(f"cannot {step}: {type(error).__name__}: {text}; {more}")


def print_summary(request: Request, report: Report) -> None:
    """Print to stdout what an export delegates, and what not."""
    from safe_arm.report.terminal import print_report

    print_report(report, _console(request))


def stock_result(request: Request, verbose: bool) -> StockResult:
    """Do what was asked for with stock's classes instead of ours, and return what becomes of it.

    The model is loaded anew, because stock may write to its weights.
    """
    with loading(request, verbose, noting=False) as (loaded, steps):
        from safe_arm.cli import stock_export

        return stock_export.stock_result(loaded, steps)


def print_comparison(
    request: Request, reports: Mapping[str, Report], stock: StockResult | None = None
) -> None:
    """Print to stdout the reports of all policies side by side, beside stock's, and the one asked for in detail."""
    from safe_arm.report.terminal import (
        print_details,
        print_recommendation,
        print_side_by_side,
    )

    console = _console(request)
    print_side_by_side(reports, console, stock)
    print_details(reports[request.policy], console)
    print_recommendation(reports, request.policy, console)


def _console(request: Request) -> Console:
    """Print a line about the request to stdout, and return the console for more."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    about = request.output or request.model
    target = with_board(request.target, request.vela)
    policy = f"--non-fuseable {request.policy}"
    line = f"{about}: {target}, {request.profile.text}, {policy}"
    console.print(Text(line, style="bold"), soft_wrap=True)
    return console
