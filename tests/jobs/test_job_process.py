"""A process for jobs: what a job dies of costs that job, which is tried once more, and nothing else."""

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from safe_arm.jobs.job_process import JobProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module")
def process():
    process = JobProcess(1)
    yield process
    process.close()


def children(pid):
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class Killer(threading.Thread):
    """Kills so many jobs of a process, each as soon as it is started."""

    def __init__(self, process, times):
        super().__init__(daemon=True)
        self.process, self.times = process, times

    def run(self):
        killed = set()
        while len(killed) < self.times:
            server = self.process._child
            for pid in children(server.pid) if server else ():
                if pid not in killed:
                    killed.add(pid)
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)


def long_job(job, programs, tmp_path):
    model = programs(1) / "net00.pt2"
    return job("check", str(model), "--target=tosa", "--calibrate=random", "--json", "--isolated")


def test_what_a_command_prints_is_its_result(process, job):
    wanted = job()
    found = process.run(wanted)
    assert (found.ended.status, found.tries, found.result) == (0, 1, True)
    assert json.loads(wanted.result.read_text())[0]["id"]
    assert found.memory > 100 << 20, "torch is loaded in it"
    assert found.machine


def test_an_earlier_result_is_not_taken_for_this_one(process, job):
    wanted = job("issues", "no-such-issue")
    wanted.result.write_text("{}")
    assert not process.run(wanted).result


def test_bad_input_is_not_tried_again(process, job):
    found = process.run(job("check", "nowhere.pt2", "--target=tosa", "--isolated"))
    assert (found.ended.status, found.tries, found.result) == (2, 1, False)
    assert found.ended.last_words.startswith("Error: model 'nowhere.pt2' does not exist")


def test_it_runs_in_the_job_s_directory(process, job, tmp_path):
    (tmp_path / "own.pt2").write_bytes(b"")
    found = process.run(job("check", "own.pt2", "--target=tosa", "--isolated"))
    assert "model 'own.pt2' is empty" in found.ended.stderr


def test_a_job_that_is_killed_is_tried_once_more(process, job, programs, tmp_path):
    wanted = long_job(job, programs, tmp_path)
    process.run(job())  # so that the server is up
    killer = Killer(process, 1)
    killer.start()
    found = process.run(wanted)
    assert (found.ended.status, found.tries, found.result) == (0, 2, True), found.ended.stderr
    assert json.loads(wanted.result.read_text())["comparison"]["reject"]["delegates"] == 1


def test_a_job_that_is_killed_twice_costs_itself_alone(process, job, programs, tmp_path):
    process.run(job())
    killer = Killer(process, 2)
    killer.start()
    found = process.run(long_job(job, programs, tmp_path))
    assert (found.ended.status, found.tries, found.result) == (-signal.SIGKILL, 2, False)
    assert found.ended.last_words == "ended by signal 9"
    assert process.run(job()).result


def test_the_server_that_is_killed_is_started_again(process, job):
    process.run(job())
    os.kill(process._child.pid, signal.SIGKILL)
    process._child.wait()
    assert process.run(job()).result


def test_closing_ends_the_job_at_once(job, programs, tmp_path):
    process = JobProcess(1)
    process.run(job())
    found = []
    running = threading.Thread(target=lambda: found.append(process.run(long_job(job, programs, tmp_path))))
    running.start()
    while not (pids := children(process._child.pid)):
        time.sleep(0.01)
    process.close()
    running.join(20)
    assert not running.is_alive()
    assert not found[0].result
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids), "what it was at ends with it"


def alive(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
