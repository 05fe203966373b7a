"""``safe-arm export``: a float program and calibration data in, a lowered ``.pte`` out."""

from __future__ import annotations

from typing import Any

import click

from safe_arm.cli.executorch_command import ExecuTorchCommand
from safe_arm.cli.lowering_command import lowered, print_summary
from safe_arm.cli.many_programs import or_many
from safe_arm.cli.options import (
    ACCURACY,
    ALLOW_EMPTY,
    FAIL_UNDER,
    FILE,
    MIN_SQNR,
    MODELS,
    RECIPE,
    VERBOSE,
    footprint_options,
    matrix_options,
    request_of,
)
from safe_arm.cli.outcome import check_limits, end_if_nothing_delegated


@click.command(cls=ExecuTorchCommand)
@MODELS
@matrix_options
@RECIPE
@footprint_options
@click.option(
    "-o",
    "--output",
    type=FILE,
    required=True,
    metavar="OUT.pte",
    help="File to write; a directory for several programs or targets.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Fail instead of falling back where the backend fails.",
)
@click.option(
    "--repro-dir",
    type=FILE,
    metavar="DIR",
    help="Write a script there for everything refused or demoted.",
)
@click.option(
    "--bundle",
    is_flag=True,
    help="Write the proof next to OUT.pte: OUT.bpte, the program with inputs and expected outputs for ExecuTorch's "
    "runners; OUT.proof.json with hashes and results; for vgf and an Ethos-U, OUT.proof.zip with the TOSA "
    "graphs of delegates. Check them with safe-arm verify-pte.",
)
@FAIL_UNDER
@ACCURACY
@MIN_SQNR
@ALLOW_EMPTY
@VERBOSE
@or_many
@click.pass_context
def export(
    ctx: click.Context,
    fail_under: float | None,
    allow_empty: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Quantise, lower and verify MODEL.pt2, and write OUT.pte.

    MODEL.pt2 is a float program saved with torch.export.save. It is quantised to int8 (weights per channel) with the
    calibration data; a program that PT2E has already quantised is taken as it is. Every delegate is run in the TOSA
    reference model and compared with the quantised graph, code by code. Operators that would be lowered wrong, or
    that the backend fails on, run on the CPU. The summary on stdout says what was delegated, what was not, and why;
    progress goes to stderr.

    DATA.npz holds one array for each input of the model, under the input's name (or arr_0, arr_1, ... in the order of
    the inputs), in the input's dtype, with a leading sample axis: shape (N, *input shape), including the model's own
    batch axis. For an input x of shape (1, 3, 32, 32) and 16 samples:

    \b
      numpy.savez("DATA.npz", x=samples)   # samples.shape == (16, 1, 3, 32, 32)

    \b
    Exit status:
        0  written
        1  the export failed; or it was written, but less than --fail-under is
           delegated, an output is below --min-sqnr, or a limit is exceeded
        2  bad input
        3  written, but nothing is delegated
      130  interrupted
    """
    request = request_of(options)
    with lowered(request, verbose) as reports:
        report = reports[request.policy]
        if not request.quiet:
            print_summary(request, report)
    check_limits(request, report, fail_under)
    end_if_nothing_delegated(ctx, [report], allow_empty)
