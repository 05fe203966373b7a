"""A recommendation of a policy, computed from the result of each policy for non-fuseable islands."""

from __future__ import annotations

from collections.abc import Mapping

from safe_arm.core.plain_reasons import plain
from safe_arm.core.record import Report
from safe_arm.report.causes import causes
from safe_arm.report.numbers import counted, counted_of, has_macs, percent, short


def recommendation(reports: Mapping[str, Report], policy: str) -> str:
    """Return in a sentence which policy to export with and its result, beside the one asked for.

    The best delegates most; of those that delegate as much, the fewest delegates and then the fewest cycles decide,
    and the policy asked for if nothing does.

    Args:
        reports: the record of one dry run for each policy.
        policy: the one asked for, a key of ``reports``.
    """
    best = max(reports, key=lambda name: (*_worth(reports[name]), name == policy))
    chosen = reports[best]
    beside = reports[policy]
    if not chosen.delegates:
        for cause in causes(chosen):
            reason = plain(cause.first.reason).rstrip(".")
            return f"nothing can be delegated: {reason}; {cause.advice}"
        return "there is nothing to delegate"
    verified = _verified(chosen)
    what = "as it is"
    if best != policy:
        what = f"export with --non-fuseable {best}"
    if best == "propagate" != policy and verified == "verified":
        # It propagates where the delegate is verified.
        what = "export with --non-fuseable best"
    facts = [
        verified,
        _share(chosen, beside),
        _delegates(chosen, beside),
        _cycles(chosen, beside, policy),
    ]
    return f"{what}: {', '.join(filter(None, facts))}"


def would_propagate(report: Report) -> str:
    """Return what another policy would do with the refused islands; empty if it would refuse them too."""
    number = report.propagate_would_keep
    if not number:
        return ""
    islands = counted_of(number, report.islands_refused, "refused island")
    return f"would delegate {islands}"


def _worth(report: Report) -> tuple[float, int, int]:
    return report.share_delegated, -len(report.delegates), -sum(report.cycles.values())


def _verified(report: Report) -> str:
    good = sum(each.verified for each in report.verifications)
    if good == len(report.delegates):
        return "verified"
    if not good:
        return "not verified"
    return f"{good} of {counted(len(report.delegates), 'delegate')} verified"


def _share(report: Report, beside: Report) -> str:
    share = f"{percent(report.share_delegated)} %"
    other = f"{percent(beside.share_delegated)} %"
    noun = "MACs" if has_macs(report) else "operators"
    return f"{share} of the {noun}{_instead(share, other)}"


def _delegates(report: Report, beside: Report) -> str:
    instead = _instead(str(len(report.delegates)), str(len(beside.delegates)))
    return f"{counted(len(report.delegates), 'delegate')}{instead}"


def _cycles(report: Report, beside: Report, policy: str) -> str:
    """Return the cycles that Vela estimates, and those of the policy asked for; empty if it does not know them all."""
    if set(report.cycles) != set(report.delegates):
        return ""
    own = sum(report.cycles.values())
    other = sum(beside.cycles.values())
    line = f"{short(own)} cycles"
    if set(beside.cycles) == set(beside.delegates) and own > other:
        return f"{line}; with {policy} the smaller part takes {short(other)}"
    return line + _instead(short(own), short(other)) if other else line


def _instead(one: str, other: str) -> str:
    return "" if one == other else f" instead of {other}"
