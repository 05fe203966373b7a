"""One job, how it ended, and its row, a line of JSON described by ``row.schema.json``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from safe_arm.core.processes import Ended
from safe_arm.core.versions import versions
from safe_arm.core.whole_file import replace_file

#: Goes up when a field changes its meaning or goes away.
SCHEMA_VERSION = 2

Figures = Mapping[str, "int | float | str | None"]


@dataclass(frozen=True)
class Job:
    """One command line of ``safe-arm``, run in the current directory.

    Attributes:
        name: the unique name in the run; the job's files begin with it.
        arguments: the words after ``safe-arm``.
        result: the JSON file that the job leaves if it comes to a result.
        on_stdout: the result is what the job prints; otherwise the job writes the file itself.
        files: the other files that it writes.
        inputs: the files that it reads and that decide its result.
        labels: the row's text by column, such as the program and the target.
    """

    name: str
    arguments: tuple[str, ...]
    result: Path
    on_stdout: bool = False
    files: tuple[Path, ...] = ()
    inputs: tuple[Path, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JobEnded:
    """The end of a job.

    Attributes:
        ended: the exit status, and what the job printed.
        seconds: how long the last try took.
        tries: how often the job was started.
        result: whether the job came to a result.
    """

    ended: Ended
    seconds: float
    tries: int
    result: bool


def digest(path: Path) -> str:
    """Return a file's SHA-256, or an empty text if the file cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def key_of(job: Job) -> str:
    """Return a digest of the arguments, the inputs' bytes and the versions: all that may change a job's result."""
    digests = [digest(path) for path in job.inputs]
    text = json.dumps([job.arguments, digests, versions()])
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Row:
    """The outcome of one job.

    Attributes:
        name: the job's name, with which its files begin.
        labels: the text by column: the program, the target.
        command: the command that repeats the job alone.
        key: changes with whatever may change the result.
        exit_status: the command's status, or minus the signal that ended it.
        error: the last words if the status is not 0; empty if they are no error.
        result: whether the job came to a result.
        tries: how often the job was started.
        seconds: how long the last try took.
        figures: the result's figures by name.
        files: the SHA-256 of each file, by its name in the directory of the rows.
    """

    name: str
    labels: Mapping[str, str]
    command: list[str]
    key: str
    exit_status: int
    error: str
    result: bool
    tries: int
    seconds: float
    figures: Figures
    files: Mapping[str, str]
    schema_version: int = SCHEMA_VERSION


def row_of(
    job: Job,
    outcome: JobEnded,
    figures: Figures,
) -> Row:
    """Return the row of a job that ended."""
    files = {}
    if outcome.result:
        for path in (job.result, *job.files):
            if path.is_file():
                files[path.name] = digest(path)
    status = outcome.ended.status
    words = outcome.ended.last_words
    is_error = words.startswith("Error: ") or not outcome.result  # else it is progress
    return Row(
        name=job.name,
        labels=dict(job.labels),
        command=["safe-arm", *job.arguments],
        key=key_of(job),
        exit_status=status,
        error=words.removeprefix("Error: ") if status and is_error else "",
        result=outcome.result,
        tries=outcome.tries,
        seconds=outcome.seconds,
        figures=figures,
        files=files,
    )


def read_rows(path: Path) -> dict[str, Row]:
    """Return by name the rows in a file of JSON lines, without lines that are no row, such as one cut short."""
    rows: dict[str, Row] = {}
    if not path.is_file():
        return rows
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = Row(**json.loads(line))
        except (ValueError, TypeError):
            continue
        if row.schema_version == SCHEMA_VERSION:
            rows[row.name] = row
    return rows


def still_holds(row: Row, job: Job) -> bool:
    """Return whether a row has a result, and neither what its job reads nor what it wrote has changed."""
    if not row.result or not row.files or row.key != key_of(job):
        return False
    folder = job.result.parent
    return all(digest(folder / name) == sha for name, sha in row.files.items())


def line_of(row: Row) -> str:
    """Return a row as JSON, without the end of the line."""
    return json.dumps(asdict(row))


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write a file of rows, whole or not at all."""
    replace_file(path, "".join(f"{line_of(row)}\n" for row in rows).encode())
