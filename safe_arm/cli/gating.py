"""The gate of ``safe-arm check``: limits, and a committed baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from safe_arm.cli.outcome import limits_kept
from safe_arm.cli.output_file import check_output, write_output
from safe_arm.core.errors import SafeArmError, UsageError
from safe_arm.core.plain_reasons import plain
from safe_arm.gate.baseline import (
    Allowed,
    Baseline,
    baseline_of,
    read_baseline,
    replaceable_baseline,
)
from safe_arm.gate.junit import JunitCase, junit
from safe_arm.gate.regressions import Comparison, compared, require_same

if TYPE_CHECKING:
    from safe_arm.cli.request import Request
    from safe_arm.core.record import Report


@dataclass(frozen=True)
class Gate:
    """The baseline of a run, and the files that are written about it.

    Attributes:
        path: the baseline's file; None to compare with none.
        baseline: what is in it; None if there is none, or it is to be written anew.
        update: write the baseline, and do not fail for what is worse.
        junit: the XML file to write.
    """

    path: Path | None = None
    baseline: Baseline | None = field(default=None, repr=False)
    update: bool = False
    junit: Path | None = None

    @property
    def has_accuracy(self) -> bool:
        """Return whether the baseline has the accuracy, which is measured then."""
        return self.baseline is not None and "sqnr_db" in self.baseline.figures


def gate_of(path: Path | None, update: bool, xml: Path | None) -> Gate:
    """Read the baseline, before any work is done.

    Raises:
        UsageError: it is not there or not one, or a file cannot be written.
    """
    if xml is not None:
        check_output(xml, (), "--junit", [path] if path else [])
    if path is None:
        if update:
            raise UsageError(
                "--update writes the baseline of --against FILE.json; give that too"
            )
        return Gate(junit=xml)
    if not update:
        return Gate(path, read_baseline(path), junit=xml)
    check_output(path, (), "--against")
    return Gate(path, replaceable_baseline(path), True, xml)


def require_same_subject(gate: Gate, request: Request) -> None:
    """Check, before any work is done, that the baseline has the target and the policy of the request.

    Raises:
        UsageError: it is of another target or policy, and is not to be written anew.
    """
    if gate.baseline is not None and not gate.update:
        require_same(
            gate.baseline.subject,
            {"target": request.target, "non_fuseable": request.policy},
        )


def compare(gate: Gate, report: Report) -> tuple[Comparison, ...]:
    """Compare a run with the baseline, if there is one.

    Raises:
        UsageError: they cannot be compared, and the baseline is not to be written anew.
    """
    if gate.baseline is None:
        return ()
    try:
        return compared(gate.baseline, baseline_of(report))
    except UsageError:
        if gate.update:
            return ()
        raise


def print_comparisons(gate: Gate, comparisons: Sequence[Comparison]) -> None:
    """Print the figures that are worse or otherwise changed since the baseline."""
    if gate.baseline is None:
        return
    worse = sum(each.worse for each in comparisons)
    line = f"{worse or 'none'} of {len(comparisons)} figures worse"
    skipped = sum(bool(each.estimators) for each in comparisons)
    if skipped:
        line += f", {skipped} not compared"
    click.echo(f"{'baseline':16}{gate.path}: {line}")
    advice = "" if gate.update else "; --update writes a baseline of the new one"
    for each in comparisons:
        if each.worse:
            click.echo(f"{'worse':16}{each.text}, since {each.since}")
        elif each.estimators:
            click.echo(f"{'not compared':16}{each.text}{advice}")
        elif each.changed:
            click.echo(f"{'changed':16}{each.text}")


def finish(
    gate: Gate,
    request: Request,
    report: Report,
    fail_under: float | None,
    comparisons: Sequence[Comparison],
    seconds: float,
) -> None:
    """Write the baseline and the XML, and fail if something is worse than the baseline or beyond a limit.

    Args:
        fail_under: the share to be delegated, in percent.
        comparisons: with the baseline.
        seconds: how long it took.

    Raises:
        SafeArmError: something is worse than the baseline or beyond a limit.
    """
    if gate.update and gate.path is not None:
        allowed = gate.baseline.allowed if gate.baseline else Allowed()
        write_output(gate.path, baseline_of(report, allowed).to_json().encode())
        if not request.quiet:
            click.echo(f"{gate.path} is written", err=True)
    limits = [JunitCase(*each) for each in limits_kept(request, report, fail_under)]
    figures = []
    for each in comparisons:
        failure = ""
        if each.worse and not gate.update:
            failure = f"{each.text}, since {each.since}"
        figures.append(JunitCase(each.name, failure, each.text))
    if gate.junit is not None:
        cases = [*limits, *figures]
        if gate.path is None:
            cases.append(JunitCase("demotions", _demotions(report)))
        suite = f"{request.model.stem}.{request.target}"
        write_output(gate.junit, junit(cases, suite, seconds))
    failures = [case.failure for case in limits if case.failure]
    worse = [case.failure for case in figures if case.failure]
    if worse:
        failures.append(
            f"worse than {str(gate.path)!r}: {'; '.join(worse)}; --update accepts it"
        )
    if failures:
        raise SafeArmError("; ".join(failures))


def _demotions(report: Report) -> str:
    """Return what was demoted and why, or an empty text if nothing was."""
    texts = []
    for verdict in report.contained:
        texts.append(f"{verdict.as_written or verdict.name}: {plain(verdict.reason)}")
    return "; ".join(texts)
