"""Figures that were measured before, as JSON lines, as long as the code they were measured with is the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

from benchmarks.quality.judge import BY, Figure

ROOT = Path(__file__).parents[2]
QUALITY = Path(__file__).parent


@cache
def keys_of_code(rows: Path) -> dict[str, str]:
    """Return a key of the code that gives each figure; only ours depends on safe_arm's source.

    Args:
        rows: the module that has the rows.
    """
    releases = " ".join(version(package) for package in ("executorch", "torch", "torchao"))
    shared = _hash((QUALITY / "judge.py", QUALITY / "subjects.py", rows), releases)
    keys = dict.fromkeys(BY, shared)
    keys["ideal"] = _hash((QUALITY / "ideal.py",), shared)
    keys["ours"] = _hash(sorted((ROOT / "safe_arm").rglob("*.py")), shared)
    return keys


def _hash(files: Iterable[Path], start: str) -> str:
    digest = hashlib.sha256(start.encode())
    for path in files:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def read(record: Path) -> list[Figure]:
    """Return the figures of a record; none if there is no such file."""
    if not record.exists():
        return []
    return [Figure(**json.loads(line)) for line in record.read_text().splitlines()]


def append(record: Path, figures: Iterable[Figure]) -> None:
    """Append figures to a record."""
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a") as file:
        for figure in figures:
            print(json.dumps(asdict(figure)), file=file, flush=True)
