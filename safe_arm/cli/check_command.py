"""``safe-arm check``: what ``safe-arm export`` would do under reject and propagate, without writing a ``.pte``."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from safe_arm.cli.executorch_command import ExecuTorchCommand
from safe_arm.cli.exit_status import FAILED
from safe_arm.cli.gating import (
    compare,
    finish,
    gate_of,
    print_comparisons,
    require_same_subject,
)
from safe_arm.cli.lowering_command import lowered, print_comparison, stock_result
from safe_arm.cli.many_programs import RESULTS, or_many
from safe_arm.cli.options import (
    ACCURACY,
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
from safe_arm.core.errors import UsageError

if TYPE_CHECKING:
    from safe_arm.cli.request import Request
    from safe_arm.core.record import Report
    from safe_arm.gate.regressions import Comparison

#: Goes up when a field changes its meaning or goes away.
SCHEMA_VERSION = 1


@click.command(cls=ExecuTorchCommand)
@MODELS
@matrix_options
@RECIPE
@footprint_options
@FAIL_UNDER
@ACCURACY
@MIN_SQNR
@click.option(
    "--against",
    type=FILE,
    metavar="BASELINE.json",
    help="Exit with status 1 if a figure is worse than in this committed baseline, and name the change and the first "
    "operator that explains it. The figures are what is delegated, refused and demoted, cycles, memory, and the "
    "accuracy if the baseline has it. Demotions that the baseline has do not fail. For several programs or targets, "
    "give a directory.",
)
@click.option(
    "--update",
    is_flag=True,
    help="Overwrite the file of --against with this run's figures; a figure that is worse does not fail then.",
)
@click.option(
    "--junit",
    type=FILE,
    metavar="FILE.xml",
    help="Write the gate's results as CI systems show them.",
)
@click.option(
    "--stock",
    is_flag=True,
    help="Export the model with stock's quantiser and partitioner too, and show the result next to the policies: its "
    "delegates, whether they compute what stock's quantised graph computes, or the exception. Stock does not change "
    "the exit status.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON document with the comparison and the report of each policy.",
)
@RESULTS
@VERBOSE
@or_many
@click.pass_context
def check(
    ctx: click.Context,
    fail_under: float | None,
    against: Path | None,
    update: bool,
    junit: Path | None,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Show what export would do with MODEL.pt2; write no .pte.

    The model is quantised, lowered and verified exactly as by safe-arm export, with the same options. A float model
    needs --calibrate; the word random in place of a file needs no data, for a first look at what would be delegated.

    \b
      safe-arm check model.pt2 --target ethos-u55-128 --calibrate DATA.npz

    The model is lowered under the policy asked for and, to compare, under reject and propagate. stdout has them side
    by side, for an Ethos-U with the cycles that Vela estimates. It then lists, for the policy asked for, each delegate
    with its content and its verification, and each operator left on the CPU with the reason. Refused operators are
    known to be lowered wrong, or the target does not support them. Demoted operators failed in the backend, or their
    delegate was measured to be wrong.

    \b
    Exit status:
        0  nothing was demoted; refused operators do not fail, see --fail-under
        1  the model cannot be lowered; or something was demoted, less than
           --fail-under is delegated, an output is below --min-sqnr, a limit is
           exceeded, or a figure is worse than in the baseline (--against)
        2  bad input
      130  interrupted
    """
    if as_json and verbose:
        raise UsageError(
            "--json and --verbose exclude each other: libraries print to stdout too; give one of them"
        )
    start = time.monotonic()
    gate = gate_of(against, update, junit)
    options["accuracy"] |= gate.has_accuracy
    options |= {"compare": True, "against": against}
    request = request_of(options, random_allowed=True)
    require_same_subject(gate, request)
    with lowered(request, verbose) as reports:
        report = reports[request.policy]
        comparisons = compare(gate, report)
        stock = stock_result(request, verbose) if request.stock else None
        if as_json:
            document = _document(request, reports)
            if gate.path:
                document["gate"] = list(map(_comparison, comparisons))
            if stock is not None:
                document["stock"] = stock.to_dict()
            click.echo(json.dumps(document, indent=1))
        elif not request.quiet:
            print_comparison(request, reports, stock)
            print_comparisons(gate, comparisons)
    finish(gate, request, report, fail_under, comparisons, time.monotonic() - start)
    if report.contained and not gate.path:
        ctx.exit(FAILED)


def _comparison(figure: Comparison) -> dict[str, Any]:
    return asdict(figure) | {"worse": figure.worse}


def _document(request: Request, reports: Mapping[str, Report]) -> dict[str, Any]:
    """Return the comparison of the policies, and the report of each, in types that JSON has."""
    from safe_arm.report.recommendation import recommendation

    comparison = {}
    records = {}
    for policy, report in reports.items():
        comparison[policy] = asdict(report.totals)
        records[policy] = report.to_dict()
    return {
        "schema_version": SCHEMA_VERSION,
        "model": str(request.model),
        "target": request.target,
        "profile": request.profile.text,
        "non_fuseable": request.policy,
        "random_calibration": request.quantisation.random,
        "recommendation": recommendation(reports, request.policy),
        "comparison": comparison,
        "reports": records,
    }
