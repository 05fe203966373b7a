"""The exit of a command that lowered a model but delegated too little, or exceeded a limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from safe_arm.cli.exit_status import NOTHING_DELEGATED
from safe_arm.core.errors import SafeArmError
from safe_arm.footprint.limits import exceeded

if TYPE_CHECKING:
    from safe_arm.cli.request import Request
    from safe_arm.core.record import Report
    from safe_arm.core.unit_accuracy import Accuracy

#: The maximum length of a reason in the line.
LONGEST = 200


def limits_kept(
    request: Request, report: Report, fail_under: float | None
) -> Iterator[tuple[str, str]]:
    """Yield the name of each limit that was asked for, and why a program does not keep it; empty if it does.

    Args:
        fail_under: the share to be delegated, in percent; None for any.
    """
    if fail_under is not None:
        share = 100 * report.share_delegated
        failure = f"{share:.1f} % is delegated, less than --fail-under {fail_under:g}"
        yield "fail-under", failure if share < fail_under else ""
    if request.min_sqnr is not None:
        yield "min-sqnr", _too_noisy(report.accuracy, request.min_sqnr)
    beyond = dict(exceeded(report, request.limits))
    for name, limit in vars(request.limits).items():
        if limit is not None:
            yield f"max-{name}", beyond.get(name, "")


def check_limits(request: Request, report: Report, fail_under: float | None) -> None:
    """Check that a program keeps the limits; arguments as for ``limits_kept``.

    Raises:
        SafeArmError: it does not; the message names each that it exceeds.
    """
    failures = [text for _, text in limits_kept(request, report, fail_under) if text]
    if failures:
        raise SafeArmError("; ".join(failures))


def _too_noisy(accuracy: Accuracy | None, least: float) -> str:
    """Return why an output is not close enough to the float one, by a ratio in dB; empty if all are on each sample."""
    if accuracy is None:
        return ""
    worst_db = accuracy.worst_sample_db
    if worst_db is None:
        return "--min-sqnr needs a float output to compare, and the model has none; leave it out"
    if worst_db >= least:
        return ""
    worst = ""
    if accuracy.worst:
        worst = f"; {accuracy.worst[0].name} costs the outputs most"
    return (
        f"an output has {worst_db:.1f} dB of signal to quantisation noise on sample {accuracy.worst_sample}, less "
        f"than --min-sqnr {least:g}{worst}; --accuracy with --report FILE.html shows every unit, safe-arm tune "
        "searches for a better quantisation"
    )


def end_if_nothing_delegated(
    ctx: click.Context, reports: list[Report], allowed: bool
) -> None:
    """End the command with status 3 and a line of advice if the whole program runs on the CPU."""
    if allowed or any(report.delegates for report in reports):
        return
    advice = next(filter(None, map(_advice, reports)), "no operator of it can be")
    click.echo(
        f"Error: nothing is delegated, the whole program runs on the CPU: {advice}; --allow-empty accepts it",
        err=True,
    )
    ctx.exit(NOTHING_DELEGATED)


def _advice(report: Report) -> str:
    from safe_arm.core.plain_reasons import plain
    from safe_arm.report.causes import causes
    from safe_arm.report.recommendation import would_propagate

    propagated = would_propagate(report)
    if propagated:
        return f"--non-fuseable best {propagated}"
    for cause in causes(report):  # the most expensive first
        text = plain(cause.first.reason)
        reason = text.rstrip(".")
        if len(text) > LONGEST:
            reason = f"{text[:LONGEST]}..."
        return f"{len(cause.verdicts)} of {len(report.compute)} operators: {reason}; {cause.advice}"
    return ""
