"""A process that takes one job after the other; what kills it costs the job that it was at."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from safe_arm.core.processes import Ended
from safe_arm.core.whole_file import replace_file
from safe_arm.jobs.job import Job, JobEnded

#: The module that serves jobs; it stands in a layer above this one.
SERVER = "safe_arm.cli.job_server"
#: How often a job is started that comes to no result.
TRIES = 2
#: The status of bad input, which another try would not mend.
BAD_INPUT = 2


class JobProcess:
    """Runs jobs in a child that is started for the first, and again after one that ended it.

    Args:
        threads: how many threads a job computes in, unless the environment says it; None for what torch picks.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._threads, self._closed = threads, False
        self._child: subprocess.Popen[bytes] | None = None
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object

    def run(self, job: Job) -> JobEnded:
        """Run a job, a second time if it comes to no result, unless what it was given is to blame."""
        tries, done = 0, False
        while not done and tries < TRIES:
            tries += 1
            job.result.unlink(missing_ok=True)
            answer = self._answer(job)
            ended = Ended(answer["status"], answer["stdout"], answer["stderr"])
            if job.on_stdout and ended.stdout:
                replace_file(job.result, ended.stdout.encode())
            done = job.result.exists()
            if ended.status == BAD_INPUT or self._closed:
                break
        return JobEnded(
            ended,
            answer["seconds"],
            answer["memory"],
            tries,
            socket.gethostname(),
            done,
        )

    def close(self) -> None:
        """End the child and the job that it is at, from whichever thread."""
        self._closed = True
        if self._child is not None:
            _end(self._child)

    def _answer(self, job: Job) -> dict[str, Any]:
        child = self._child
        if child is None or child.poll() is not None:
            child = self._child = self._start()
        request = json.dumps({"arguments": job.arguments, "folder": str(job.folder)})
        line = b""
        try:
            child.stdin.write(f"{request}\n".encode())  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
            line = child.stdout.readline()  # type: ignore[union-attr]
        except OSError:  # it ended before it read
            pass
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        status = _end(child)
        return {
            "status": status or 1,
            "stdout": "",
            "stderr": self._last_words(),
            "seconds": 0.0,
            "memory": 0,
        }

    def _start(self) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        threads = (
            {} if self._threads is None else {"OMP_NUM_THREADS": str(self._threads)}
        )
        return subprocess.Popen(
            [sys.executable, "-m", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env={**threads, **os.environ, "PYTHONPATH": path},
            start_new_session=os.name == "posix",
        )

    def _last_words(self) -> str:
        self._words.seek(0)
        return self._words.read().decode(errors="replace")


def _end(child: subprocess.Popen[bytes]) -> int:
    """Kill a child; its job sees the end of the pipe, and ends with all it started."""
    child.kill()
    with suppress(OSError):
        child.stdin.close()  # type: ignore[union-attr]
    return child.wait()
