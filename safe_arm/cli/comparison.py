"""The findings of ``safe-arm check`` as one JSON document, described by ``check.schema.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safe_arm.cli.request import Request
    from safe_arm.core.record import Report

#: Goes up when a field changes its meaning or goes away.
SCHEMA_VERSION = 1


def document(request: Request, reports: Mapping[str, Report]) -> dict[str, Any]:
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
