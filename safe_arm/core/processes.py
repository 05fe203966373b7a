"""Run a program in a process of its own, with a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """The end of a process: its status and its output.

    Attributes:
        status: its exit status; minus the signal that ended it; 1 if it could not be started.
        stdout: its output, undecodable bytes replaced.
        stderr: its error output, or the reason why it could not be started.
        timed_out: it did not finish in time and was killed, with every process that it had started.
        started: it was a program that could be run at all.
    """

    status: int
    stdout: str
    stderr: str
    timed_out: bool = False
    started: bool = True

    @property
    def good(self) -> bool:
        """True if it finished and exited with 0."""
        return self.status == 0 and not self.timed_out

    @property
    def output(self) -> str:
        """All it printed, stdout first."""
        return self.stdout + self.stderr

    @property
    def last_words(self) -> str:
        """The last line it printed, stderr's before stdout's, or its status if it printed nothing."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        if lines:
            return lines[-1].strip()[:300]
        if self.status < 0:
            return f"ended by signal {-self.status}"
        return f"exits {self.status}"


def run(
    command: Sequence[str | Path],
    *,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Ended:
    """Run a command to its end, with nothing to read from stdin.

    A command that cannot be started is status 1, one that took too long has "did not finish within ... s" as the last
    line of its ``stderr``: nothing is raised for them.

    Args:
        command: the program and its arguments.
        seconds: the time limit.
        environment: its variables; None for this process's.
        folder: its working directory; None for this process's.
    """
    try:
        process = subprocess.Popen(
            list(map(str, command)),
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=os.name == "posix",
        )
    except OSError as error:
        return Ended(1, "", str(error.strerror or error), started=False)
    with process:
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            stdout, stderr = process.communicate()
            stderr = f"{stderr}\ndid not finish within {seconds:g} s"
            return Ended(process.returncode, stdout, stderr, timed_out=True)
        except BaseException:
            _end(process)
            raise
    return Ended(process.returncode, stdout, stderr)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a process and those it started, which would keep its pipes open."""
    if os.name != "posix":
        process.kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run_python(*arguments: str | Path, seconds: float) -> Ended:
    """Run this interpreter, with the same safe_arm in reach."""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    return run([sys.executable, *arguments], seconds=seconds, environment=environment)
