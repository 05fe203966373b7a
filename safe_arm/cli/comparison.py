"""The findings of ``safe-arm check`` as one JSON document, described by ``check.schema.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safe_arm.cli.request import Request
    from safe_arm.core.record import Report

#: Goes up when a field changes its meaning or goes away.
SCHEMA_VERSION = 1


def document(request: Request, reports: Mapping[str, Report]) -> dict[str, Any]:
    """Return the comparison of the policies, and the report of each, in types that JSON has."""
    from safe_arm.report.recommendation import recommendation

    records = {policy: report.to_dict() for policy, report in reports.items()}
    return {
        "schema_version": SCHEMA_VERSION,
        "model": str(request.model),
        "target": request.target,
        "profile": request.profile.text,
        "non_fuseable": request.policy,
        "random_calibration": request.quantisation.random,
        "recommendation": recommendation(reports, request.policy),
        "comparison": {
            policy: compared_of(record) for policy, record in records.items()
        },
        "reports": records,
    }


def compared_of(record: Mapping[str, Any]) -> dict[str, int | float | None]:
    """Return the figures of a report, which is given as its JSON has it."""
    totals = record["totals"]
    verifications = record["verifications"]
    operators = totals["operators"]
    inside = totals["operators_delegated"]
    delegated = inside
    everything = operators
    if totals["macs"]:
        delegated = totals["macs_delegated"]
        everything = totals["macs"]
    demoted = 0
    for node in record["nodes"]:
        demoted += node["verdict"] == "demoted" and _computes(node["op"])
    verified = cycles = None
    if verifications:
        verified = sum(each["verified"] for each in verifications)
    if record["cycles"]:
        cycles = sum(record["cycles"].values())
    return {
        "delegates": totals["delegates"],
        "operators": operators,
        "operators_delegated": inside,
        "share_delegated": delegated / everything if everything else 1.0,
        "refused": operators - inside - demoted,
        "demoted": demoted,
        "verified": verified,
        "vela_cycles": cycles,
    }


def _computes(operator: str) -> bool:
    return bool(operator) and not operator.startswith("quantized_decomposed::")
