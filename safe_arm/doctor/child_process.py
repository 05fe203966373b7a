"""Run something that may crash, hang or chatter in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: Importing ExecuTorch takes seconds on a good day.
SECONDS = 180


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit status, and all it said on stdout and stderr."""

    status: int
    stdout: str
    stderr: str

    @property
    def good(self) -> bool:
        """Whether it exited with 0."""
        return self.status == 0

    @property
    def last_words(self) -> str:
        """The last line of what it said, or how it ended if it said nothing."""
        said = (self.stderr.strip() or self.stdout.strip()).splitlines()
        if said:
            return said[-1].strip()[:300]
        return f"ended by signal {-self.status}" if self.status < 0 else f"exits {self.status}"


def run(command: list[str], environment: dict[str, str] | None = None) -> Ended:
    """Run a command to its end, with nothing to read; a time out or a file that is no program is status 1."""
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Ended(1, "", f"did not finish within {SECONDS} s")
    except OSError as error:
        return Ended(1, "", str(error.strerror or error))
    return Ended(done.returncode, done.stdout, done.stderr)


def python(*arguments: str) -> Ended:
    """Run this interpreter, with the same safe_arm in reach."""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return run([sys.executable, *arguments], {**os.environ, "PYTHONPATH": path})
