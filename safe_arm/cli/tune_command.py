"""``safe-arm tune``: the cheapest quantisation that is good enough, as a recipe for ``safe-arm export``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from safe_arm.cli.executorch_command import ExecuTorchCommand
from safe_arm.cli.interrupt import telling_what_is_written
from safe_arm.cli.lowering_command import loading
from safe_arm.cli.many_programs import or_many
from safe_arm.cli.option_types import Bytes
from safe_arm.cli.options import FILE, MODELS, VERBOSE, matrix_options, request_of
from safe_arm.cli.output_file import check_output
from safe_arm.cli.request import Request, Target
from safe_arm.core.errors import UsageError
from safe_arm.footprint.limits import Limits


@click.command(cls=ExecuTorchCommand)
@MODELS
@matrix_options
@click.option(
    "--min-sqnr",
    type=float,
    metavar="DB",
    help="Signal to quantisation noise ratio that each output has to reach over the compared samples, as the line "
    "'float net' of export and check shows it.",
)
@click.option(
    "--metric",
    metavar="FILE.py:FUNCTION",
    help="Judge by this function instead: it is called with the quantised model, a callable, and returns a number; "
    "larger is better. The file is executed.",
)
@click.option(
    "--at-least", type=float, metavar="X", help="Value that the --metric has to reach."
)
@click.option(
    "--max-cycles",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Stay within this cost: Vela's cycles, plus the estimate for operators on the CPU; for an Ethos-U. With "
    "no accuracy to reach, the most accurate quantisation within the budget is found.",
)
@click.option(
    "--max-sram",
    type=Bytes("--max-sram"),
    metavar="BYTES",
    help="Stay within this SRAM, counted as by export --max-sram; for an Ethos-U.",
)
@click.option(
    "-o",
    "--output",
    type=FILE,
    required=True,
    metavar="RECIPE.json",
    help="Recipe to write; a directory for several programs or targets.",
)
@click.option(
    "--front",
    type=FILE,
    metavar="FILE.html",
    help="Draw accuracy against cost, as a page.",
)
@VERBOSE
@or_many
def tune(
    output: Path,
    metric: str | None,
    at_least: float | None,
    front: Path | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Find the cheapest quantisation that is good enough.

    With a budget and no accuracy target, the most accurate quantisation within the budget is found.

    The model is quantised as by safe-arm export. If that is not good enough, tune first tries what costs nothing: one
    scale for each channel, and other observers. Then the operators whose quantisation harms the outputs most get
    16-bit activations, if the target has them, or stay float; what turns out not to be needed is taken back. Every
    trial is lowered and run in the TOSA reference model, so a recipe contains nothing unproven.

    The cost is Vela's cycles for an Ethos-U, with an estimate for operators on the CPU. For other targets it is
    multiply-accumulates, where 16-bit activations count twice and floats four times. stdout shows the best trials by
    accuracy and cost.

    Use the result with safe-arm export --recipe RECIPE.json. The trials are kept next to it, in RECIPE.trials.jsonl:
    the same command continues after an interrupt, which leaves the best recipe so far.

    \b
    Exit status:
        0  the target is reached
        1  the model cannot be lowered
        2  bad input, or the target cannot be reached or nothing is within the
           budget; the recipe is then the best, or the nearest, that was found
      130  interrupted
    """
    request = request_of(options)
    target = Target(metric, at_least, output, front)
    _check(request, target)
    places = [output, target.log, *filter(None, (front,))]
    with (
        telling_what_is_written(places),
        loading(request, verbose) as (loaded, steps),
    ):
        from safe_arm.cli.tuning import tuned

        text, why = tuned(loaded, target, steps)
    if not request.quiet:
        click.echo(text)
    if why:
        raise UsageError(_unreached(request, target, why))


def _unreached(request: Request, target: Target, why: str) -> str:
    """Return what is not reached, why, and the advice to a user."""
    best = f"{why}; {target.output} has the best"
    if request.min_sqnr is None and target.at_least is None:
        return f"{best}; raise the budget"
    options = ["lower the target"]
    if request.limits != Limits():
        options.append("raise the budget")
    options.append("train the model with this quantisation")
    return f"the target is not reached: {best}; {', or '.join(options)}"


def _check(request: Request, target: Target) -> None:
    """Refuse what cannot be tuned, before torch is loaded."""
    budgeted = request.limits != Limits()
    has_metric = target.metric is not None
    aims = [request.min_sqnr is not None, has_metric]
    if all(aims) or not (any(aims) or budgeted):
        raise UsageError(
            "tune needs a target: give either --min-sqnr DB, or --metric FILE.py:FUNCTION and --at-least X, or a "
            "budget, --max-cycles NUMBER or --max-sram BYTES"
        )
    has_value = target.at_least is not None
    if has_value != has_metric and (has_value or not budgeted):
        raise UsageError(
            "--metric and --at-least go together; give both, or --min-sqnr DB"
        )
    useless = {
        "--no-verify": not request.verify,
        "--io int8": request.integer_io,
        "--report": bool(request.reports),
        "--keep-float": bool(request.quantisation.keep_float),
    }
    for name, given in useless.items():
        if given:
            raise UsageError(
                f"{name} is of no use to tune, which proves every trial and chooses by itself; leave it out"
            )
    if not request.profile.integer:
        raise UsageError(
            f"tune quantises, and {request.profile.text} is a float profile; leave --profile out"
        )
    taken = [request.model, *filter(None, (request.quantisation.calibration,))]
    check_output(target.output, taken)
    if target.front is not None:
        check_output(target.front, taken, "--front", [target.output])


#: Parameters of a lowering that tune refuses; its help leaves them out.
_REFUSED = ("verify", "io", "reports", "keep_float")
for option in tune.params:
    if isinstance(option, click.Option) and option.name in _REFUSED:
        option.hidden = True
