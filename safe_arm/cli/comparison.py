"""What ``safe-arm check`` found, as one JSON document; ``check.schema.json`` beside this module describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safe_arm.cli.request import Request
    from safe_arm.core.record import Report

#: Goes up when a field changes its meaning or goes away.
SCHEMA_VERSION = 1


def document(request: Request, reports: Mapping[str, Report]) -> dict[str, Any]:
    """Return the policies beside each other, and the report of each, as JSON's own types."""
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
    """Return what a report, as its JSON has it, comes to."""
    totals, nodes = record["totals"], record["nodes"]
    operators, inside = totals["operators"], totals["operators_delegated"]
    share = (
        (totals["macs_delegated"], totals["macs"])
        if totals["macs"]
        else (inside, operators)
    )
    demoted = sum(
        node["verdict"] == "demoted" and _computes(node["op"]) for node in nodes
    )
    verifications = record["verifications"]
    return {
        "delegates": totals["delegates"],
        "operators": operators,
        "operators_delegated": inside,
        "share_delegated": share[0] / share[1] if share[1] else 1.0,
        "refused": operators - inside - demoted,
        "demoted": demoted,
        "verified": sum(each["verified"] for each in verifications)
        if verifications
        else None,
        "vela_cycles": sum(record["cycles"].values()) if record["cycles"] else None,
    }


def _computes(operator: str) -> bool:
    return bool(operator) and not operator.startswith("quantized_decomposed::")
