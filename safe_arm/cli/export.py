"""``safe-arm export``: a float program and calibration data in, a lowered ``.pte`` out."""

from __future__ import annotations

import sys
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from safe_arm.cli.request import Request
from safe_arm.cli.targets import DEFAULT_PROFILE, POLICIES, PROFILE_NAMES, TARGETS, accept, profile_for
from safe_arm.errors import SafeArmError, UsageError

if TYPE_CHECKING:
    from safe_arm.cli.progress import Steps
    from safe_arm.report.record import Report

FILE = click.Path(path_type=Path)


@click.command(no_args_is_help=False)
@click.argument("model", type=FILE, metavar="MODEL.pt2")
@click.option("--target", required=True, metavar="TARGET", help=f"What to compile for: {', '.join(TARGETS)}.")
@click.option(
    "--profile",
    metavar="SPEC",
    help=f"TOSA specification, for vgf and tosa: {', '.join(PROFILE_NAMES)}, or one of them with extensions such as "
    f"+int16. Default {DEFAULT_PROFILE}. A profile without INT exports the model in float and needs no calibration. "
    "An Ethos-U target has its own profile.",
)
@click.option(
    "--non-fuseable",
    default=POLICIES[0],
    show_default=True,
    metavar="|".join(POLICIES),
    help="What to do with a convolution or linear whose activation is not implied by the quantisation of its output "
    "(a relu before a cat, for one). reject: keep both out of the delegate; they run on the CPU. propagate: delegate "
    "both, the activation kept as a clamp of its own.",
)
@click.option("--calibrate", type=FILE, metavar="DATA.npz", help="Calibration data, format below. Needed to quantise.")
@click.option("-o", "--output", type=FILE, required=True, metavar="OUT.pte", help="The file to write.")
@click.option("--strict", is_flag=True, help="Fail, instead of keeping off the accelerator what the backend fails on.")
@click.option(
    "--repro-dir",
    type=FILE,
    metavar="DIR",
    help="Write there, for everything the backend fails on, a script that repeats it.",
)
@click.option(
    "--no-verify",
    "verify",
    flag_value=False,
    default=True,
    help="Do not run the delegates in the TOSA reference model. By default what differs there from the quantised "
    "graph, in codes, is kept off the accelerator.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show what the libraries print, and the traceback of a failure.")
def export(
    model: Path,
    target: str,
    profile: str | None,
    non_fuseable: str,
    calibrate: Path | None,
    output: Path,
    strict: bool,
    repro_dir: Path | None,
    verify: bool,
    verbose: bool,
) -> None:
    """Quantise the float program MODEL.pt2, lower it and write OUT.pte.

    MODEL.pt2 is what torch.export.save wrote. It is quantised to int8 (weights per channel) with the calibration
    data. Everything that would be lowered wrongly, and everything the backend fails on, stays out of the delegate and
    runs on the CPU; what is delegated has been run in the TOSA reference model and compared, code by code. The
    summary on stdout says what was delegated, what was not and why; progress goes to stderr.

    DATA.npz holds one array for each input of the model, under the input's name (or arr_0, arr_1, ... in the order
    of the inputs), in the input's dtype, with a leading sample axis: shape (N, *input shape), the model's own batch
    axis included. For an input x of shape (1, 3, 32, 32) and 16 samples:

    \b
      numpy.savez("DATA.npz", x=samples)   # samples.shape == (16, 1, 3, 32, 32)

    Exit status: 0 written, 1 the export failed, 2 bad input, 130 interrupted.
    """
    accept("target", target, TARGETS)
    accept("--non-fuseable", non_fuseable, POLICIES)
    chosen = profile_for(target, profile)
    request = Request(model, target, chosen, non_fuseable, calibrate, output, strict, repro_dir, verify)
    arrays = check(request)
    report = _export(request, arrays, verbose)
    try:
        _print_summary(request, report)
    except OSError as error:
        raise SafeArmError(f"{output} is written, but not the summary: {error.strerror or error}") from error


def check(request: Request) -> dict[str, Any] | None:
    """Check everything that can be checked before torch is loaded, and return the calibration arrays.

    Raises:
        UsageError: something cannot work.
    """
    from safe_arm.cli.calibration import read_arrays
    from safe_arm.cli.model_file import check_model_file
    from safe_arm.cli.output_file import check_output
    from safe_arm.cli.tools import check_tools

    check_model_file(request.model)
    given = request.calibration
    check_output(request.output, (request.model, given) if given else (request.model,))
    if request.profile.integer and given is None:
        alternative = "" if request.target.startswith("ethos-u") else ", or export in float with --profile TOSA-1.0+FP"
        raise UsageError(
            f"{request.profile.text} needs a quantised model: give --calibrate DATA.npz to quantise it{alternative}"
        )
    arrays = read_arrays(given) if given and request.profile.integer else None
    check_tools(request.target, verify=request.verify)
    return arrays


def _export(request: Request, arrays: dict[str, Any] | None, verbose: bool) -> Report:
    """Run the export, quietly unless ``verbose``, and turn what goes wrong into one line."""
    from safe_arm.cli.progress import Steps
    from safe_arm.cli.quiet import quiet

    with quiet(not verbose) as stream:
        steps = Steps(stream)
        _note(request, steps)
        try:
            with steps.step(f"load {request.model.name}", announce=False):
                from safe_arm.cli import pipeline

                program = pipeline.load(request.model)
                samples = pipeline.samples_of(program, arrays, steps) if arrays is not None else None
            return pipeline.run(request, program, samples, steps)
        except UsageError:
            raise
        except (Exception, SystemExit) as error:  # Vela ends with sys.exit
            if verbose:
                traceback.print_exc()
            raise _failure(steps.current, error, verbose) from error


def _note(request: Request, steps: Steps) -> None:
    """Say what the user should know before the work: an untested ExecuTorch, data that is not used."""
    from safe_arm._compat.versions import warn_if_untested

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_if_untested()
    for warning in caught:
        steps.note(f"Warning: {warning.message}")
    if request.calibration and not request.profile.integer:
        steps.note(f"Note: {request.profile.text} is a float profile; --calibrate is not used")


def _failure(step: str, error: BaseException, verbose: bool) -> SafeArmError:
    if isinstance(error, ModuleNotFoundError):
        return UsageError(f"{error}; install it with \"pip install 'safe-arm[vgf,ethos-u]'\"")
    said = " ".join(str(error).split())
    said = said if len(said) <= 300 else f"{said[:300]}..."
    more = "see the traceback above" if verbose else "run with -v for the traceback"
    return SafeArmError(f"cannot {step}: {type(error).__name__}: {said}; {more}")


def _print_summary(request: Request, report: Report) -> None:
    from rich.console import Console
    from rich.text import Text

    from safe_arm.report.text import print_report

    console = Console(file=sys.stdout, highlight=False)
    policy = f"--non-fuseable {request.policy}"
    console.print(
        Text(f"{request.output}: {request.target}, {request.profile.text}, {policy}", style="bold"), soft_wrap=True
    )
    print_report(report, console)
