"""What a program came to once, kept in a small file that is committed beside it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from safe_arm.core.errors import UsageError
from safe_arm.core.record import NodeVerdict, Report
from safe_arm.footprint.limits import amounts

#: What says that a JSON file is a baseline; ``baseline.schema.json`` beside this module describes it.
KIND = "safe_arm baseline"
#: Goes up when a field changes its meaning or goes away.
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Operator:
    """One operator that computes.

    Attributes:
        name: as it is written, such as ``Conv2d stem.conv (aten::convolution)``; of several alike, numbered.
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
    """By how much a figure may be worse before the gate fails; edited in the file.

    Attributes:
        cycles_percent, memory_percent: of what the baseline has.
        sqnr_db: what another CPU's rounding of floats makes of the ratio.
    """

    cycles_percent: float = 0.0
    memory_percent: float = 0.0
    sqnr_db: float = 0.1


@dataclass(frozen=True)
class Baseline:
    """What a program came to.

    Attributes:
        subject: for which target, under which rules; another is not compared.
        figures: by name, what is compared; what was not measured is not in it.
        operators: in graph order.
        versions: of the tools.
        allowed: by how much it may be worse.
    """

    subject: dict[str, str]
    figures: dict[str, float]
    operators: tuple[Operator, ...]
    versions: dict[str, str] = field(default_factory=dict)
    allowed: Allowed = Allowed()

    def to_json(self) -> str:
        """Return the file's text: one operator a line, so that a review shows what changed."""
        rest = {
            name: value for name, value in asdict(self).items() if name != "operators"
        }
        head = json.dumps(
            {"kind": KIND, "schema_version": SCHEMA_VERSION, **rest}, indent=1
        ).removesuffix("\n}")
        lines = ",\n".join(
            f"  {json.dumps(asdict(operator))}" for operator in self.operators
        )
        return f'{head},\n "operators": [\n{lines}\n ]\n}}\n'


def baseline_of(report: Report, allowed: Allowed | None = None) -> Baseline:
    """Return what a program came to.

    Args:
        report: the record of one run, with its footprint, and with its accuracy if that is to be kept.
        allowed: by how much it may be worse.
    """
    subject = {
        name: getattr(report.subject, name)
        for name in ("target", "profile", "non_fuseable")
    }
    figures = {name: value for name, value in _figures(report) if value is not None}
    versions = {
        name: version for name, version in report.subject.versions.items() if version
    }
    return Baseline(
        subject, figures, tuple(_operators(report)), versions, allowed or Allowed()
    )


def _figures(report: Report) -> Iterator[tuple[str, float | None]]:
    """Yield everything that is compared, by the name that the file gives it."""
    yield "share_delegated_percent", 100 * report.share_delegated
    yield "refused", len(report.fallbacks) - len(report.demoted)
    yield "demoted", len(report.demoted)
    yield "delegates", len(report.delegates)
    yield "sqnr_db", report.accuracy.worst_output_db if report.accuracy else None
    yield (
        "worst_sample_db",
        report.accuracy.worst_sample_db if report.accuracy else None,
    )
    for amount in amounts(report):
        yield (
            amount.name if amount.name == "cycles" else f"{amount.name}_bytes",
            amount.number,
        )


def _operators(report: Report) -> Iterator[Operator]:
    ratios = (
        {unit.name: unit.cumulative_db for unit in report.accuracy.units}
        if report.accuracy
        else {}
    )
    seen: Counter[str] = Counter()
    for verdict in report.compute:
        name = _named(verdict, report)
        seen[name] += 1
        numbered = name if seen[name] == 1 else f"{name} #{seen[name]}"
        yield Operator(
            numbered,
            verdict.verdict,
            verdict.reason,
            verdict.value,
            verdict.macs,
            ratios.get(verdict.unit),
        )


def _named(verdict: NodeVerdict, report: Report) -> str:
    return (
        verdict.as_written
        if len(report.methods) == 1
        else f"{verdict.method}: {verdict.as_written}"
    )


def read_baseline(path: Path) -> Baseline:
    """Read a baseline.

    Raises:
        UsageError: there is none at ``path``, or it is not one, or of another version.
    """
    if not path.exists():
        raise UsageError(f"baseline {str(path)!r} does not exist; --update writes it")
    data = _json_of(path)
    if data.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(
            f"baseline {str(path)!r} is of schema {data.get('schema_version')!r}, and this safe-arm reads "
            f"{SCHEMA_VERSION}; --update writes it anew"
        )
    try:
        return _from(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"baseline {str(path)!r} cannot be read ({error!r}); remove it and --update"
        ) from error


def replaceable_baseline(path: Path) -> Baseline | None:
    """Read the baseline that is to be replaced; None if there is none, or it is of another version.

    Raises:
        UsageError: what is at ``path`` is no baseline, and is not written over.
    """
    if not path.exists() or _json_of(path).get("schema_version") != SCHEMA_VERSION:
        return None
    return read_baseline(path)


def _json_of(path: Path) -> dict[str, Any]:
    """Return what a baseline holds, of whatever version."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"baseline {str(path)!r} cannot be read ({error}); give another --against"
        ) from error
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise UsageError(
            f"{str(path)!r} is no baseline of safe-arm check; give another --against"
        )
    return data


def _from(data: dict[str, Any]) -> Baseline:
    operators = tuple(Operator(**each) for each in data["operators"])
    if not all(isinstance(value, (int, float)) for value in data["figures"].values()):
        raise TypeError("a figure is no number")
    known = {each.name for each in fields(Baseline)} - {"operators", "allowed"}
    return Baseline(
        **{name: data[name] for name in known},
        operators=operators,
        allowed=Allowed(**data["allowed"]),
    )
