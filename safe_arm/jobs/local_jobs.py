"""Jobs in processes of this machine, as many at a time as its memory holds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

from safe_arm.jobs.job import Job, JobEnded
from safe_arm.jobs.job_process import JobProcess


def run_here(
    jobs: Sequence[Job], processes: int, memory: int
) -> Iterator[tuple[Job, JobEnded]]:
    """Yield jobs as they end.

    Args:
        jobs: in the order to start them; one that does not fit beside those running lets smaller ones go first.
        processes: how many run at a time, at most.
        memory: bytes that those running may need together; a job that needs more runs alone.
    """
    threads = max(1, (os.cpu_count() or 1) // processes)
    idle = [JobProcess(threads) for _ in range(min(processes, len(jobs)))]
    every, waiting = tuple(idle), list(jobs)
    running: dict[Future[JobEnded], tuple[Job, JobProcess]] = {}
    with ThreadPoolExecutor(processes) as pool:
        try:
            while waiting or running:
                while idle and (
                    job := _fitting(
                        waiting, memory, [job for job, _ in running.values()]
                    )
                ):
                    waiting.remove(job)
                    process = idle.pop()
                    running[pool.submit(process.run, job)] = job, process
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job, process = running.pop(future)
                    idle.append(process)
                    yield job, future.result()
        finally:
            for process in every:
                process.close()


def _fitting(waiting: list[Job], memory: int, running: list[Job]) -> Job | None:
    free = memory - sum(job.memory for job in running)
    return next((job for job in waiting if job.memory <= free or not running), None)


def available_memory() -> int:
    """Return the bytes that this machine, or the container this runs in, has left."""
    left = (
        [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
        if hasattr(os, "sysconf")
        else []
    )
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        left.append(
            1024
            * int(
                next(line for line in lines if line.startswith("MemAvailable")).split()[
                    1
                ]
            )
        )
    with suppress(OSError, ValueError):  # "max" is no number
        limit, used = (
            int(Path(f"/sys/fs/cgroup/memory.{name}").read_text())
            for name in ("max", "current")
        )
        left.append(limit - used)
    return min(left, default=1 << 62)
