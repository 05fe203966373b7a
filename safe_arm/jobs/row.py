"""What came of one job, as a line of JSON; ``row.schema.json`` beside this module describes it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from safe_arm.core.whole_file import replace_file
from safe_arm.jobs.job import Job, JobEnded, digest, key_of

#: Goes up when a field changes its meaning or goes away.
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Row:
    """What came of one job.

    Attributes:
        name: the job's, its files begin with it.
        labels: by column, what it was: the program, the target.
        command: what repeats it alone.
        key: changes with whatever may change what comes of it.
        exit_status: the command's; minus the signal that ended it.
        error: its last words if its status is not 0; empty if they are no error.
        result: whether it came to one.
        tries: how often it was started; 0 if that is not known.
        seconds: how long the last try took.
        memory_expected, memory: bytes; what it was taken to need, and what its largest process held, 0 if not known.
        machine: where it ran.
        figures: what it came to, by name.
        files: by name, in the directory of the rows, their SHA-256.
    """

    name: str
    labels: dict[str, str]
    command: list[str]
    key: str
    exit_status: int
    error: str
    result: bool
    tries: int
    seconds: float
    memory_expected: int
    memory: int
    machine: str
    figures: dict[str, int | float | str | None] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION


def row_of(
    job: Job, ended: JobEnded, figures: dict[str, int | float | str | None]
) -> Row:
    """Return the row of a job that ended."""
    files = (
        {path.name: digest(path) for path in (job.result, *job.files) if path.is_file()}
        if ended.result
        else {}
    )
    words = ended.ended.last_words
    told = words.startswith("Error: ") or not ended.result  # otherwise it is progress
    error = words.removeprefix("Error: ") if ended.ended.status and told else ""
    return Row(
        job.name,
        dict(job.labels),
        ["safe-arm", *job.arguments],
        key_of(job),
        ended.ended.status,
        error,
        ended.result,
        ended.tries,
        ended.seconds,
        job.memory,
        ended.memory,
        ended.machine,
        figures,
        files,
    )


def read_rows(path: Path) -> dict[str, Row]:
    """Return by name the rows in a file of JSON lines; what is none, as a line cut short, is left out."""
    found: dict[str, Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            row = Row(**json.loads(line))
        except (ValueError, TypeError):
            continue
        if row.schema_version == SCHEMA_VERSION:
            found[row.name] = row
    return found


def still_holds(row: Row, job: Job) -> bool:
    """Whether a row is what its job would come to again: it has a result, and nothing that it read or wrote changed."""
    if not row.result or row.key != key_of(job):
        return False
    return bool(row.files) and all(
        digest(job.result.parent / name) == sha for name, sha in row.files.items()
    )


def line_of(row: Row) -> str:
    """Return a row as JSON, without the end of the line."""
    return json.dumps(asdict(row))


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write a file of rows, whole or not at all."""
    replace_file(path, "".join(f"{line_of(row)}\n" for row in rows).encode())
