"""One job, how it ended, and what its result depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from safe_arm.core.processes import Ended
from safe_arm.core.versions import versions


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
    sha = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                sha.update(chunk)
    except OSError:
        return ""
    return sha.hexdigest()


def key_of(job: Job) -> str:
    """Return a digest of the arguments, the inputs' bytes and the versions: all that may change a job's result."""
    digests = [digest(path) for path in job.inputs]
    text = json.dumps([job.arguments, digests, versions()])
    return hashlib.sha256(text.encode()).hexdigest()
