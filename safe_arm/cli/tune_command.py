"""``safe-arm tune``: the cheapest quantisation that is good enough, as a recipe for ``safe-arm export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from safe_arm.cli.executorch_command import ExecuTorchCommand
from safe_arm.cli.interrupt import telling_what_is_written
from safe_arm.cli.lowering_command import loading
from safe_arm.cli.many_programs import or_many
from safe_arm.cli.options import FILE, MODELS, VERBOSE, matrix_options, request_of
from safe_arm.cli.output_file import check_output
from safe_arm.core.errors import UsageError

if TYPE_CHECKING:
    from safe_arm.cli.request import Request


@dataclass(frozen=True)
class Target:
    """The goal of ``tune``, and the files that it writes.

    Attributes:
        min_sqnr: signal to quantisation noise in dB; None for a metric.
        metric, at_least: the function, as ``FILE.py:FUNCTION``, and the value it shall reach.
        output: the recipe.
        front: the page; None for none.
        log: what was tried.
    """

    min_sqnr: float | None
    metric: str | None
    at_least: float | None
    output: Path
    front: Path | None
    log: Path


@click.command(cls=ExecuTorchCommand, no_args_is_help=False)
@MODELS
@matrix_options
@click.option(
    "--min-sqnr",
    type=float,
    metavar="DB",
    help="The signal to quantisation noise of each output over all samples.",
)
@click.option(
    "--metric",
    metavar="FILE.py:FUNCTION",
    help="Judge by this function instead: it is called with the quantised model, a callable, and returns a number, the "
    "larger the better. The file is run, so it has to be yours.",
)
@click.option(
    "--at-least", type=float, metavar="X", help="What the --metric shall reach."
)
@click.option(
    "-o",
    "--output",
    type=FILE,
    required=True,
    metavar="RECIPE.json",
    help="The recipe to write; a directory for those of several programs, or for several targets.",
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
    min_sqnr: float | None,
    metric: str | None,
    at_least: float | None,
    front: Path | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Find the cheapest quantisation of MODEL.pt2 that is good enough, and write it as RECIPE.json.

    The model is quantised as safe-arm export does it. If that is not good enough, what costs nothing is tried first:
    scales for each channel, other observers. Then the operators whose quantisation harms the outputs most, as measured,
    get 16-bit activations, if the target has them, or stay float; what turns out not to be needed is taken back. Each
    trial is quantised, lowered, and run in the TOSA reference model; nothing that is not proven ends in a recipe. A
    cost is in Vela's cycles for an Ethos-U, with an estimate for what runs on the CPU, else in multiply-accumulates,
    those of 16 bits twice and of floats four times. stdout gets the front of accuracy against cost.

    safe-arm export --recipe RECIPE.json quantises by it. What was tried is kept beside it, in RECIPE.trials.jsonl: the
    same command goes on where it was interrupted, and an interrupt leaves the best recipe so far.

    Exit status: 0 the target is reached, 1 the model cannot be lowered, 2 bad input, or the target cannot be reached
    (the recipe is the best there is then), 130 interrupted.
    """
    request = request_of(options)
    target = Target(
        min_sqnr, metric, at_least, output, front, output.with_suffix(".trials.jsonl")
    )
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
        raise UsageError(
            f"the target is not reached: {why}; {output} has the best; lower the target, or train with it"
        )


def _check(request: Request, target: Target) -> None:
    """Refuse what cannot be tuned, before torch is loaded."""
    if (target.min_sqnr is None) == (target.metric is None):
        raise UsageError(
            "tune wants a target: give either --min-sqnr DB, or --metric FILE.py:FUNCTION and --at-least X"
        )
    if (target.metric is None) != (target.at_least is None):
        raise UsageError(
            "--metric and --at-least go together; give both, or --min-sqnr DB"
        )
    useless = {
        "--no-verify": not request.verify,
        "--io int8": request.integer_io,
        "--report": bool(request.reports),
        "--keep-float": bool(request.quantisation.keep_float),
    }
    for name in (name for name, given in useless.items() if given):
        raise UsageError(
            f"{name} is of no use to tune, which proves every trial and chooses by itself; leave it out"
        )
    if not request.profile.integer:
        raise UsageError(
            f"tune quantises, and {request.profile.text} is a float profile; leave --profile out"
        )
    taken = [request.model, *filter(None, (request.quantisation.calibration,))]
    check_output(target.output, tuple(taken))
    if target.front is not None:
        check_output(target.front, (*taken, target.output), "--front")
