"""Jobs in processes of their own: so many at a time, and a crash costs the job that crashed."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from interpreter import ROOT
from job_actions import act

from safe_arm.jobs.job_processes import run_jobs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, and needs forks")


def run(*jobs, at_a_time=1):
    return {job.name: outcome for job, outcome in run_jobs(jobs, at_a_time, act, "json")}


def alive(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def assert_gone(pids):
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(alive, pids))


def test_what_a_job_prints_is_its_result(job, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    wanted = job("print")
    outcome = run(wanted)["job"]
    assert (outcome.ended.status, outcome.ended.stderr, outcome.tries, outcome.result) == (0, "", 1, True)
    said = json.loads(wanted.result.read_text())
    assert said["pid"] != os.getpid()
    assert said["folder"] == str(tmp_path)
    assert int(said["threads"]) >= 1
    outcome = run(job("raise"))["job"]
    assert (outcome.ended.status, outcome.tries, outcome.result) == (1, 2, False), "an earlier result is not its own"
    assert outcome.ended.last_words == "ZeroDivisionError: division by zero"


def test_bad_input_is_not_tried_again(job):
    outcome = run(job("refuse"))["job"]
    assert (outcome.ended.status, outcome.tries, outcome.result) == (2, 1, False)
    assert outcome.ended.last_words == "Error: bad input"


def test_a_job_that_crashes_is_tried_once_more_and_costs_itself_alone(job, tmp_path):
    jobs = [job("die", name="twice"), job("die once", str(tmp_path / "died"), name="once"), job("print", name="good")]
    found = run(*jobs, at_a_time=2)
    ended = [(found[each].ended.status, found[each].tries) for each in ("twice", "once", "good")]
    assert ended == [(-signal.SIGKILL, 2), (0, 2), (0, 1)]
    assert found["twice"].ended.last_words == "ended by signal 9"
    assert jobs[1].result.read_text() == "second\n"


def test_so_many_run_at_a_time_in_their_order(job, tmp_path):
    (names := tmp_path / "names").mkdir()
    jobs = [job("count", str(names), str(index), name=f"job{index}") for index in range(7)]
    most = max(int(outcome.ended.stdout) for outcome in run(*jobs, at_a_time=3).values())
    assert 1 < most <= 3
    found = run(*jobs)
    assert list(found) == [each.name for each in jobs]
    assert {outcome.ended.stdout for outcome in found.values()} == {"1\n"}
    assert run() == {}


def test_whoever_stops_listening_ends_what_runs_and_what_that_started(job, tmp_path):
    ends = run_jobs([job("sleep", str(tmp_path / "pids"), name="long"), job("print")], 2, act, "json")
    assert next(ends)[0].name == "job"
    while not (tmp_path / "pids").exists() or not (text := (tmp_path / "pids").read_text()):
        time.sleep(0.01)
    ends.close()
    assert_gone(map(int, text.split()))


def test_jobs_end_with_their_parent(tmp_path):
    script = """
from pathlib import Path
from job_actions import act
from safe_arm.jobs.row import Job
from safe_arm.jobs.job_processes import run_jobs
list(run_jobs([Job("a", ("sleep", "pids"), Path("a.json"))], 1, act, "json"))
"""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"}
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, env=environment)
    while not (tmp_path / "pids").exists() or not (text := (tmp_path / "pids").read_text()):
        assert parent.poll() is None
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    assert_gone([int(each) for each in text.split()])
