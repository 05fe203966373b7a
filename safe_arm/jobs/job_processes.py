"""Run jobs in processes of this machine, one process each; a crash costs only its own job."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from safe_arm.core.processes import Ended
from safe_arm.core.stdio import flush_everything, redirected
from safe_arm.core.whole_file import replace_file
from safe_arm.jobs.row import Job, JobEnded

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

    Context: TypeAlias = ForkServerContext | SpawnContext

#: How often a job is started that comes to no result.
TRIES = 2
#: The status of bad input, which another try would not fix.
BAD_INPUT = 2

Command: TypeAlias = Callable[[Sequence[str]], object]


@dataclass(frozen=True)
class _Attempt:
    """One process of one job.

    Attributes:
        job, number: the job, and how often it has been started.
        process: the process, the leader of a process group.
        output: the directory of its files ``stdout`` and ``stderr``.
        began: the monotonic time of its start.
    """

    job: Job
    number: int
    process: BaseProcess
    output: Path
    began: float


def run_jobs(
    jobs: Sequence[Job],
    at_a_time: int,
    command: Command,
    preload: str,
) -> Generator[tuple[Job, JobEnded], None, None]:
    """Yield jobs as they end; whoever stops listening ends those that are running.

    Args:
        jobs: the jobs in the order of their start.
        at_a_time: the maximum number of processes.
        command: the function that a process calls with its job's arguments; it is found by its name in its module.
        preload: the module that is loaded once for all processes.
    """
    if not jobs:
        return
    waiting = deque((job, 1) for job in jobs)
    running: dict[int, _Attempt] = {}
    context = _context(preload, max(1, (os.cpu_count() or 1) // at_a_time))
    with tempfile.TemporaryDirectory() as folder:
        try:
            while waiting or running:
                while waiting and len(running) < at_a_time:
                    job, number = waiting.popleft()
                    attempt = _start(context, command, job, number, folder)
                    running[attempt.process.sentinel] = attempt
                for sentinel in wait(list(running)):
                    attempt = running.pop(cast(int, sentinel))
                    outcome = _finished(attempt)
                    hopeless = outcome.ended.status == BAD_INPUT
                    if outcome.result or hopeless or attempt.number == TRIES:
                        yield attempt.job, outcome
                    else:
                        waiting.appendleft((attempt.job, attempt.number + 1))
        finally:
            for attempt in running.values():
                _kill(attempt.process)


def _context(preload: str, threads: int) -> Context:
    """Return the way to start processes: as forks of a server that has loaded a module, or anew where none can be.

    The server imports the same safe_arm as this process. It and its forks use ``threads`` threads, unless the
    environment says otherwise.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    before = dict(os.environ)
    path = os.pathsep.join(
        (str(Path(__file__).parents[2]), before.get("PYTHONPATH", ""))
    )
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ["PYTHONPATH"] = path.rstrip(os.pathsep)
    # The server inherits the mask: an interrupt of the terminal is not for it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with open(os.devnull, "wb") as null, redirected(null.fileno(), 1, 2):
            forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return context


def _start(
    context: Context,
    command: Command,
    job: Job,
    number: int,
    folder: str,
) -> _Attempt:
    job.result.unlink(missing_ok=True)
    output = Path(tempfile.mkdtemp(dir=folder))
    process = context.Process(target=_job, args=(command, job.arguments, output))
    process.start()
    return _Attempt(job, number, process, output, time.monotonic())


def _job(
    command: Command,
    arguments: tuple[str, ...],
    output: Path,
) -> None:
    """Run a job in this process, whose exit status is the job's."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(output / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, descriptor)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        command(arguments)
    finally:
        flush_everything()


def _end_with_parent() -> None:
    """Wait for the end of the parent process, then end this one and those that it started."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        _kill_group(0)


def _finished(attempt: _Attempt) -> JobEnded:
    """Return how an attempt ended, its process gone and its result written."""
    job = attempt.job
    process = attempt.process
    seconds = round(time.monotonic() - attempt.began, 1)
    process.join()
    status = process.exitcode or 0
    _kill(process)
    ended = Ended(
        status, _text(attempt.output / "stdout"), _text(attempt.output / "stderr")
    )
    if job.on_stdout and ended.stdout:
        replace_file(job.result, ended.stdout.encode())
    return JobEnded(ended, seconds, attempt.number, job.result.exists())


def _text(file: Path) -> str:
    """Return what a process printed, which is nothing if it ended before it opened the file."""
    return file.read_text("utf-8", errors="replace") if file.exists() else ""


def _kill(process: BaseProcess) -> None:
    """End a process and those that it started."""
    if process.pid is not None:
        _kill_group(process.pid)
    process.kill()
    process.join()
    process.close()


def _kill_group(leader: int) -> None:
    if hasattr(os, "killpg"):
        with suppress(OSError):  # it has ended
            os.killpg(leader, signal.SIGKILL)
