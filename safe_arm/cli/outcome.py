"""The exit of a command that lowered a model but delegated too little, or exceeded a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from safe_arm.cli.exit_status import NOTHING_DELEGATED
from safe_arm.core.errors import SafeArmError

if TYPE_CHECKING:
    from safe_arm.core.record import Report
    from safe_arm.footprint.limits import Limits

#: The maximum length of a reason in the line.
LONGEST = 200


def check_share(report: Report, least: float | None) -> None:
    """Check that enough is delegated.

    Args:
        least: the share that is wanted, in percent; None for none.

    Raises:
        SafeArmError: less is.
    """
    share = 100 * report.share_delegated
    if least is not None and share < least:
        raise SafeArmError(
            f"{share:.1f} % is delegated, less than --fail-under {least:g}"
        )


def check_limits(report: Report, limits: Limits) -> None:
    """Check that the program keeps the limits.

    Raises:
        SafeArmError: it takes more than a limit; the message names each.
    """
    from safe_arm.footprint.limits import exceeded

    texts = [text for _, text in exceeded(report, limits)]
    if texts:
        raise SafeArmError("; ".join(texts))


def check_sqnr(report: Report, least: float | None) -> None:
    """Check that the quantised model is close enough to the float one, on each sample.

    Args:
        least: the ratio of signal to quantisation noise that each output shall have on each sample, in dB; None for
            none.

    Raises:
        SafeArmError: one has less, or none is float.
    """
    accuracy = report.accuracy
    if least is None or accuracy is None:
        return
    worst_db = accuracy.worst_sample_db
    if worst_db is None:
        raise SafeArmError(
            "--min-sqnr needs a float output to compare, and the model has none; leave it out"
        )
    if worst_db < least:
        worst = ""
        if accuracy.worst:
            worst = f"; {accuracy.worst[0].name} costs the outputs most"
        raise SafeArmError(
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
    from safe_arm.report.numbers import counted_of

    if report.propagate_would_keep:
        number = report.propagate_would_keep
        islands = counted_of(number, report.islands_refused, "refused island")
        return f"--non-fuseable best would delegate {islands}"
    from safe_arm.core.plain_reasons import plain
    from safe_arm.report.causes import causes

    for cause in causes(report):  # the most expensive first
        text = plain(cause.text)
        reason = text.rstrip(".")
        if len(text) > LONGEST:
            reason = f"{text[:LONGEST]}..."
        return f"{len(cause.verdicts)} of {len(report.compute)} operators: {reason}; {cause.advice}"
    return ""
