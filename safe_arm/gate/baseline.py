"""The figures of a program at one time, in a small file that is committed next to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safe_arm.core.errors import UsageError
from safe_arm.core.record import Report
from safe_arm.core.structured import structured
from safe_arm.footprint.limits import amounts

#: The kind of JSON file that is a baseline; ``baseline.schema.json`` beside this module describes it.
KIND = "safe_arm baseline"
#: Goes up when a field changes its meaning or goes away.
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Operator:
    """One operator that computes.

    Attributes:
        name: its name as written, such as ``Conv2d stem.conv (aten::convolution)``; numbered if several are alike.
        verdict: delegated, refused, demoted or de-tagged.
        reason: why it is not delegated; empty if it is.
        value: dtype and shape of what it returns.
        macs: its multiply-accumulates.
        sqnr_db: signal to quantisation noise of its unit as the net runs; None if that was not measured.
    """

    name: str
    verdict: str
    reason: str
    value: str
    macs: int
    sqnr_db: float | None = None


@dataclass(frozen=True)
class Allowed:
    """The losses that the gate allows; a user edits them in the file.

    Attributes:
        cycles_percent, memory_percent: in percent of the baseline's value.
        sqnr_db: the difference that another CPU's rounding of floats may make.
    """

    cycles_percent: float = 0.0
    memory_percent: float = 0.0
    sqnr_db: float = 0.1


@dataclass(frozen=True)
class Baseline:
    """The figures of a program.

    Attributes:
        subject: its target and rules; only baselines of the same subject are compared.
        figures: the figures by name, without those that were not measured.
        operators: in graph order.
        versions: the versions of the tools.
        allowed: the losses that are allowed.
    """

    subject: dict[str, str]
    figures: dict[str, float]
    operators: tuple[Operator, ...]
    versions: dict[str, str] = field(default_factory=dict)
    allowed: Allowed = Allowed()

    @property
    def by_name(self) -> dict[str, Operator]:
        """The operators by their names."""
        return {operator.name: operator for operator in self.operators}

    def to_json(self) -> str:
        """Return the file's text: one operator a line, so that a review shows the ones that changed."""
        content = {"kind": KIND, "schema_version": SCHEMA_VERSION, **asdict(self)}
        operators = content.pop("operators")
        head = json.dumps(content, indent=1).removesuffix("\n}")
        lines = ",\n".join([f"  {json.dumps(operator)}" for operator in operators])
        return f'{head},\n "operators": [\n{lines}\n ]\n}}\n'


def baseline_of(report: Report, allowed: Allowed = Allowed()) -> Baseline:
    """Return the baseline of a program.

    Args:
        report: the record of one run, with its footprint, and with its accuracy if that is to be kept.
        allowed: the losses that are allowed.
    """
    subject = report.subject
    versions = subject.versions.items()
    return Baseline(
        subject={
            "target": subject.target,
            "profile": subject.profile,
            "non_fuseable": subject.non_fuseable,
        },
        figures={name: value for name, value in _figures(report) if value is not None},
        operators=tuple(_operators(report)),
        versions={name: version for name, version in versions if version},
        allowed=allowed,
    )


def _figures(report: Report) -> Iterator[tuple[str, float | None]]:
    """Yield the figures, each with its name in the file; None for one that is not known."""
    totals = report.totals
    yield "share_delegated_percent", 100 * totals.share_delegated
    yield "refused", totals.refused
    yield "demoted", totals.demoted
    yield "delegates", totals.delegates
    if report.accuracy:
        yield "sqnr_db", report.accuracy.worst_output_db
        yield "worst_sample_db", report.accuracy.worst_sample_db
    for amount in amounts(report):
        name = "cycles" if amount.name == "cycles" else f"{amount.name}_bytes"
        yield name, amount.number


def _operators(report: Report) -> Iterator[Operator]:
    ratios = {}
    if report.accuracy:
        ratios = {unit.name: unit.cumulative_db for unit in report.accuracy.units}
    occurrences: Counter[str] = Counter()
    for verdict in report.compute:
        name = report.method_prefix(verdict.method) + verdict.as_written
        occurrences[name] += 1
        if occurrences[name] > 1:
            name += f" #{occurrences[name]}"
        yield Operator(
            name=name,
            verdict=verdict.verdict,
            reason=verdict.reason,
            value=verdict.value,
            macs=verdict.macs,
            sqnr_db=ratios.get(verdict.unit),
        )


def read_baseline(path: Path) -> Baseline:
    """Read a baseline.

    Raises:
        UsageError: there is none at ``path``, or it is not one, or of another version.
    """
    if not path.exists():
        raise UsageError(f"baseline {str(path)!r} does not exist; --update writes it")
    data = _json_of(path)
    version = data.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"baseline {str(path)!r} is of schema {version!r}, and this safe-arm reads {SCHEMA_VERSION}; --update "
            "writes it anew"
        )
    try:
        for value in data["figures"].values():
            if not isinstance(value, (int, float)):
                raise TypeError("a figure is no number")
        data["allowed"] = {**asdict(Allowed()), **data["allowed"]}
        baseline: Baseline = structured(Baseline, data)
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"baseline {str(path)!r} cannot be read ({error!r}); remove it and --update"
        ) from error
    return baseline


def replaceable_baseline(path: Path) -> Baseline | None:
    """Read the baseline that is to be replaced; None if there is none, or it is of another version.

    Raises:
        UsageError: the file at ``path`` is no baseline, and must not be written over.
    """
    if not path.exists() or _json_of(path).get("schema_version") != SCHEMA_VERSION:
        return None
    return read_baseline(path)


def _json_of(path: Path) -> dict[str, Any]:
    """Return the content of a baseline of any version, without its kind."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"baseline {str(path)!r} cannot be read ({error}); give another --against"
        ) from error
    if not isinstance(data, dict) or data.pop("kind", None) != KIND:
        raise UsageError(
            f"{str(path)!r} is no baseline of safe-arm check; give another --against"
        )
    return data
