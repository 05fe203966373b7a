"""``safe-arm check``: what ``safe-arm export`` would do under both policies, and no ``.pte``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from safe_arm.cli.comparison import document
from safe_arm.cli.exit_status import FAILED
from safe_arm.cli.lowering_command import lowered, print_comparison
from safe_arm.cli.options import ACCURACY, FAIL_UNDER, MIN_SQNR, MODEL, RECIPE, VERBOSE, lowering_options, request_of
from safe_arm.cli.outcome import check_share, check_sqnr
from safe_arm.core.errors import UsageError


@click.command(no_args_is_help=False)
@MODEL
@lowering_options
@RECIPE
@FAIL_UNDER
@ACCURACY
@MIN_SQNR
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document: the comparison, and both reports.")
@VERBOSE
@click.pass_context
def check(
    ctx: click.Context, model: Path, fail_under: float | None, as_json: bool, verbose: bool, **options: Any
) -> None:
    """Say what safe-arm export would do with the float program MODEL.pt2, and write no .pte.

    The model is quantised, lowered and verified exactly as safe-arm export does it, with the same options; DATA.npz is
    explained there. --calibrate random does without data, for a first look at what would be delegated. stdout gets
    both policies for non-fuseable islands side by side, for an Ethos-U with the cycles that Vela estimates. A paragraph
    for each delegate under the policy asked for follows: what is in it, and whether it was verified, on how many sets
    of inputs, and the largest difference in codes, or why it was not. Then comes what stays off the accelerator:
    refused, because it is known to be lowered wrongly or the target does not take it, or demoted, because the backend
    fails on it or its delegate was measured to be wrong.

    Exit status: 0 nothing was demoted, 1 something was, too little is delegated, the quantised model is too far from
    the float one (--min-sqnr) or it cannot be lowered, 2 bad input, 130 interrupted.
    """
    if as_json and verbose:
        raise UsageError("--json and --verbose exclude each other: libraries print to stdout too; give one of them")
    request = request_of(model, random_allowed=True, **options, compare=True)
    with lowered(request, verbose) as reports:
        if as_json:
            click.echo(json.dumps(document(request, reports), indent=1))
        elif not request.quiet:
            print_comparison(request, reports)
    check_share(reports[request.policy], fail_under)
    check_sqnr(reports[request.policy], request.min_sqnr)
    if reports[request.policy].contained:
        ctx.exit(FAILED)
