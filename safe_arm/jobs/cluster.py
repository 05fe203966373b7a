"""Jobs on the workers of a Dask cluster, which see the same files under the same names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from safe_arm.core.errors import UsageError
from safe_arm.core.processes import Ended
from safe_arm.core.versions import versions
from safe_arm.jobs.job import Job, JobEnded
from safe_arm.jobs.job_process import JobProcess

if TYPE_CHECKING:
    from distributed import Client

#: The resource that a worker declares: bytes that its jobs may need together.
MEMORY = "memory"
#: Seconds until a scheduler that does not answer is none.
PATIENCE = 30
_of_thread = threading.local()


def connected(address: str) -> Client:
    """Return a client of a Dask scheduler.

    Raises:
        UsageError: ``distributed`` is not installed, or nothing answers there.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{error}; --scheduler needs Dask: \"pip install 'safe-arm[cluster]'\""
        ) from error
    try:
        return Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise UsageError(
            f"no Dask scheduler answers at {address!r} ({why}"
            '); start one with "dask scheduler", workers with "dask worker ADDRESS --resources memory=16e9"'
        ) from error


def check_workers(client: Client, folder: Path, probe: Callable[[], str]) -> None:
    """Check that there are workers, and that each can do what the jobs ask.

    Args:
        client: of the cluster.
        folder: where the jobs write.
        probe: run on each worker; it returns what is missing, empty for nothing.

    Raises:
        UsageError: no worker, one without this safe_arm, with other versions, that does not see the directory, or that
            ``probe`` complains of; the message names the worker.
    """
    if not client.scheduler_info()["workers"]:
        raise UsageError(
            'the scheduler has no workers; start some with "dask worker ADDRESS --resources memory=16e9"'
        )
    try:
        found = client.run(_state, str(folder), probe, on_error="return")
    except (OSError, TimeoutError) as error:
        raise UsageError(
            f"a worker does not answer: {error}; start it again"
        ) from error
    own = versions()
    for worker, state in found.items():
        if isinstance(state, BaseException):
            raise UsageError(
                f"worker {worker}: {type(state).__name__}: {state}; install this safe_arm in it"
            )
        differing = [
            f"{name} {theirs or 'none'}"
            for name, theirs in state[0].items()
            if theirs != own.get(name)
        ]
        if differing:
            wanted = ", ".join(
                f"{name} {version or 'none'}" for name, version in own.items()
            )
            raise UsageError(
                f"worker {worker} has {', '.join(differing)}; install what is here: {wanted}"
            )
        if not state[1]:
            raise UsageError(
                f"worker {worker} does not see {str(folder)!r}; give a directory that all machines share"
            )
        if state[2]:
            raise UsageError(f"worker {worker}: {state[2]}")


def declared_memory(client: Client) -> int:
    """Return the bytes that the largest worker declares for its jobs, 0 if none declares any."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return max(
        (int(worker["resources"].get(MEMORY, 0)) for worker in workers), default=0
    )


def run_there(jobs: Sequence[Job], client: Client) -> Iterator[tuple[Job, JobEnded]]:
    """Yield jobs as they end.

    A job whose worker dies goes to another worker, as often as ``distributed.scheduler.allowed-failures`` says. Where
    workers declare ``memory``, each runs as many as it holds. What nobody waits for any more is cancelled.

    Args:
        jobs: in the order of their priority.
        client: of the cluster.
    """
    from distributed import as_completed

    most = declared_memory(client)
    futures = {
        client.submit(
            _run,
            job,
            key=f"safe-arm-{job.name}-{uuid4().hex}",
            pure=False,
            priority=-number,
            resources={MEMORY: min(job.memory, most)} if most else None,
        ): job
        for number, job in enumerate(jobs)
    }
    try:
        for future in as_completed(list(futures), loop=client.loop):
            error, job = future.exception(), futures.pop(future)
            ended = future.result() if error is None else _lost(error)
            future.release()  # or it would be run again if the worker that holds it dies
            yield job, ended
    finally:
        client.cancel(list(futures))


def _lost(error: BaseException) -> JobEnded:
    """Return what became of a job whose workers died."""
    return JobEnded(
        Ended(1, "", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"),
        tries=0,
    )


def _run(job: Job) -> JobEnded:
    """Run a job on a worker, each of whose threads has a process for its jobs."""
    if not hasattr(_of_thread, "process"):
        _of_thread.process = JobProcess()
    ended: JobEnded = _of_thread.process.run(job)
    return ended


def _state(folder: str, probe: Callable[[], str]) -> tuple[dict[str, str], bool, str]:
    return versions(), Path(folder).is_dir(), probe()
