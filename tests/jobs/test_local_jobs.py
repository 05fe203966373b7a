"""Jobs here: as many at a time as asked for and as memory holds."""

import threading
import time

import pytest

from safe_arm.core.processes import Ended
from safe_arm.jobs import local_jobs
from safe_arm.jobs.job import JobEnded
from safe_arm.jobs.local_jobs import available_memory, run_here


class Counted:
    """A process that only counts what runs beside it."""

    lock, running, most, closed = threading.Lock(), [], [], 0

    def __init__(self, threads):
        assert threads >= 1

    def run(self, job):
        with self.lock:
            self.running.append(job.memory)
            self.most.append((len(self.running), sum(self.running)))
        time.sleep(0.02)
        with self.lock:
            self.running.remove(job.memory)
        return JobEnded(Ended(0, "", ""))

    def close(self):
        type(self).closed += 1


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(local_jobs, "JobProcess", Counted)
    Counted.most, Counted.closed = [], 0
    return Counted


def order(job, memories, **options):
    jobs = [job(name=f"job{index}", memory=memory) for index, memory in enumerate(memories)]
    return [each.name for each, _ in run_here(jobs, **options)]


def test_so_many_run_at_a_time(counted, job):
    assert sorted(order(job, [1] * 9, processes=3, memory=100)) == [f"job{index}" for index in range(9)]
    assert max(counted.most)[0] == 3
    assert counted.closed == 3


def test_they_share_the_memory_there_is_and_what_needs_more_runs_alone(counted, job):
    assert len(order(job, [6, 6, 3, 3, 50, 3], processes=4, memory=10)) == 6
    assert max(number for number, _ in counted.most) > 1
    over = [(number, memory) for number, memory in counted.most if memory > 10]
    assert over == [(1, 50)]


def test_one_process_keeps_the_order(counted, job):
    assert order(job, [5, 1, 9], processes=1, memory=2) == ["job0", "job1", "job2"]
    assert order(job, [], processes=2, memory=2) == []


def test_whoever_stops_listening_ends_the_processes(counted, job):
    jobs = [job(name=f"job{index}") for index in range(5)]
    ends = run_here(jobs, 2, 100)
    next(ends)
    ends.close()
    assert counted.closed == 2


def test_a_container_s_limit_counts(monkeypatch, tmp_path):
    files = {"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:  7000 kB\n"}
    names = {f"/sys/fs/cgroup/memory.{name}": value for name, value in (("max", "5000000\n"), ("current", "1000000\n"))}

    class Path:
        def __init__(self, name):
            self.name = name

        def read_text(self):
            if self.name not in files:
                raise FileNotFoundError(self.name)
            return files[self.name]

    assert available_memory() > 1 << 20
    monkeypatch.setattr(local_jobs, "Path", Path)
    assert available_memory() == 7000 * 1024
    files |= names
    assert available_memory() == 4_000_000
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    assert available_memory() == 7000 * 1024
