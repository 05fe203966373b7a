"""``safe-arm check``: what ``safe-arm export`` would do under both policies, and no ``.pte``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from safe_arm.cli.lowering_command import lowered, print_comparison
from safe_arm.cli.options import MODEL, VERBOSE, lowering_options, request_of
from safe_arm.core.errors import SafeArmError

DEMOTED = 1


@click.command(no_args_is_help=False)
@MODEL
@lowering_options
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit with status 1 if less than this share of the multiply-accumulates is delegated.",
)
@VERBOSE
@click.pass_context
def check(ctx: click.Context, model: Path, fail_under: float | None, verbose: bool, **options: Any) -> None:
    """Say what safe-arm export would do with the float program MODEL.pt2, and write no .pte.

    The model is quantised, lowered and verified exactly as safe-arm export does it, with the same options; DATA.npz is
    explained there. stdout gets both policies for non-fuseable islands side by side, for an Ethos-U with the cycles
    that Vela estimates. A paragraph for each delegate under the policy asked for follows: what is in it, and whether it
    was verified, on how many sets of inputs, and the largest difference in codes, or why it was not. Then comes what
    stays off the accelerator: refused, because it is known to be lowered wrongly or the target does not take it, or
    demoted, because the backend fails on it or its delegate was measured to be wrong.

    Exit status: 0 nothing was demoted, 1 something was, too little is delegated or the model cannot be lowered, 2 bad
    input, 130 interrupted.
    """
    request = request_of(model, **options, compare=True)
    with lowered(request, verbose) as reports:
        print_comparison(request, reports)
    report = reports[request.policy]
    share = 100 * report.share_delegated
    if fail_under is not None and share < fail_under:
        raise SafeArmError(f"{share:.1f} % is delegated, less than --fail-under {fail_under:g}")
    if report.contained:
        ctx.exit(DEMOTED)
