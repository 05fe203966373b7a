"""What one job is, and how it ended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safe_arm.core.processes import Ended
from safe_arm.core.versions import versions


@dataclass(frozen=True)
class Job:
    """One command line of ``safe-arm``, to be run in a directory that every machine sees under one name.

    Attributes:
        name: a name that no other job of the run has; its files begin with it.
        arguments: what comes after ``safe-arm``.
        folder: the directory it runs in.
        result: the JSON file that it leaves if it comes to a result.
        on_stdout: the result is what it prints; otherwise it writes the file itself.
        files: the other files that it writes.
        inputs: the files that it reads and that decide what comes of it.
        memory: bytes that it is expected to need.
        labels: what the row says of it, by column: the program, the target.
    """

    name: str
    arguments: tuple[str, ...]
    folder: Path
    result: Path
    on_stdout: bool
    files: tuple[Path, ...]
    inputs: tuple[Path, ...]
    memory: int
    labels: Mapping[str, str]


@dataclass(frozen=True)
class JobEnded:
    """How a job ended.

    Attributes:
        ended: its exit status and what it printed.
        seconds: how long the last try took.
        memory: bytes its largest process held at once; 0 if that is not known.
        tries: how often it was started.
        machine: where it ran.
        result: whether it came to one.
    """

    ended: Ended
    seconds: float = 0.0
    memory: int = 0
    tries: int = 1
    machine: str = ""
    result: bool = False


def digest(path: Path) -> str:
    """Return a file's SHA-256, empty if it cannot be read."""
    found = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                found.update(chunk)
    except OSError:
        return ""
    return found.hexdigest()


def key_of(job: Job) -> str:
    """Return what changes with whatever may change a job's result: arguments, the inputs' bytes, versions."""
    told = json.dumps(
        [job.arguments, [digest(path) for path in job.inputs], versions()]
    )
    return hashlib.sha256(told.encode()).hexdigest()
