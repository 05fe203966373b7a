"""What to do, computed from what each policy for non-fuseable islands came to."""

from __future__ import annotations

from collections.abc import Mapping

from safe_arm.core.record import Report
from safe_arm.report.causes import causes
from safe_arm.report.numbers import counted, percent, short


def recommendation(reports: Mapping[str, Report], policy: str) -> str:
    """Return in a sentence which policy to export with and what it comes to, beside the one asked for.

    The best delegates most; of those that delegate as much, the fewest delegates and then the fewest cycles decide,
    and the policy asked for if nothing does.

    Args:
        reports: by policy, the record of one dry run.
        policy: the one asked for, a key of ``reports``.
    """
    asked = reports[policy]
    best = max(reports, key=lambda name: (*_worth(reports[name]), name == policy))
    chosen = reports[best]
    if not chosen.delegates:
        first = next(iter(causes(chosen)), None)
        return (
            f"nothing can be delegated: {first.text}; {first.advice}"
            if first
            else "there is nothing to delegate"
        )
    beside = asked if best != policy else chosen
    what = f"export with --non-fuseable {best}" if best != policy else "as it is"
    facts = (
        _verified(chosen),
        _share(chosen, beside),
        _delegates(chosen, beside),
        _cycles(chosen, beside),
    )
    return f"{what}: {', '.join(filter(None, facts))}"


def _worth(report: Report) -> tuple[float, int, int]:
    return report.share_delegated, -len(report.delegates), -sum(report.cycles.values())


def _verified(report: Report) -> str:
    good = sum(each.verified for each in report.verifications)
    if good == len(report.delegates):
        return "verified"
    return (
        f"{good} of {counted(len(report.delegates), 'delegate')} verified"
        if good
        else "not verified"
    )


def _share(report: Report, beside: Report) -> str:
    parts = [_parts(each) for each in (report, beside)]
    shares = [f"{percent(part, total)} %" for part, total, _ in parts]
    return f"{shares[0]} of the {parts[0][2]}{_instead(*shares)}"


def _parts(report: Report) -> tuple[int, int, str]:
    if total := sum(verdict.macs for verdict in report.verdicts):
        return (
            sum(verdict.macs for verdict in report.verdicts if verdict.delegate),
            total,
            "MACs",
        )
    return len(report.compute) - len(report.fallbacks), len(report.compute), "operators"


def _delegates(report: Report, beside: Report) -> str:
    numbers = [str(len(each.delegates)) for each in (report, beside)]
    return f"{counted(len(report.delegates), 'delegate')}{_instead(*numbers)}"


def _cycles(report: Report, beside: Report) -> str:
    """Say how many cycles Vela estimates; empty if it does not know all delegates."""
    if set(report.cycles) != set(report.delegates):
        return ""
    own, other = sum(report.cycles.values()), sum(beside.cycles.values())
    if set(beside.cycles) != set(beside.delegates) or own <= other:
        return (
            f"{short(own)} cycles{_instead(short(own), short(other)) if other else ''}"
        )
    return f"{short(own)} cycles, {short(other)} for what is delegated as it is"


def _instead(one: str, other: str) -> str:
    return "" if one == other else f" instead of {other}"
