"""``safe-arm check``: what ``safe-arm export`` would do, and nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from safe_arm.cli.options import MODEL, VERBOSE, lowering_options, request_of
from safe_arm.cli.work import carry_out, checked, print_summary
from safe_arm.errors import SafeArmError

DEMOTED = 1


@click.command(no_args_is_help=False)
@MODEL
@lowering_options
@VERBOSE
@click.pass_context
def check(ctx: click.Context, model: Path, verbose: bool, **options: Any) -> None:
    """Say what safe-arm export would do with the float program MODEL.pt2, and write nothing.

    The model is quantised, lowered and verified exactly as safe-arm export does it, with the same options; DATA.npz is
    explained there. stdout gets a paragraph for each delegate: what is in it, and whether it was verified, on how many
    sets of inputs, and the largest difference in codes, or why it was not. What stays off the accelerator follows:
    refused, because it is known to be lowered wrongly or the target does not take it, or demoted, because the backend
    fails on it or its delegate was measured to be wrong.

    Exit status: 0 nothing was demoted, 1 something was or the model cannot be lowered, 2 bad input, 130 interrupted.
    """
    request = request_of(model, **options)
    report = carry_out(request, checked(request), verbose)
    try:
        print_summary(request, report, detailed=True)
    except OSError as error:
        raise SafeArmError(f"the summary cannot be written: {error.strerror or error}") from error
    if report.contained:
        ctx.exit(DEMOTED)
