"""Jobs on a Dask cluster: the same bytes as one by one, whatever becomes of a worker."""

import json
import os
import signal
import threading
import time
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from job_rows import files_of, rows_of

pytest.importorskip("distributed")


@contextmanager
def cluster(workers, **options):
    from distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "dashboard_address": None, "resources": {"memory": 4e9}} | options
    with LocalCluster(n_workers=workers, **options) as started, Client(started, set_as_default=False) as client:
        yield started.scheduler_address, client


def export(folder, output, *more, targets=("vgf", "ethos-u55-128")):
    from safe_arm.cli.main import cli

    named = [f"--target={each}" for each in targets]
    return CliRunner().invoke(
        cli,
        ["export", f"{folder}/net*.pt2", f"--calibrate={folder}", f"--output={output}", "--isolated", *named, *more],
    )


class WorkerKiller(threading.Thread):
    """Kills one of the workers once there are so many rows."""

    def __init__(self, client, rows, after):
        super().__init__(daemon=True)
        self.pids, self.rows, self.after, self.killed = client.run(os.getpid), rows, after, 0

    def run(self):
        while not self.rows.exists() or len(self.rows.read_text().splitlines()) < self.after:
            time.sleep(0.05)
        self.killed = next(iter(self.pids.values()))
        os.kill(self.killed, signal.SIGKILL)


def check_a_worker_that_dies(folder, tmp_path, programs, after, *more):
    with cluster(2) as (address, client):
        killer = WorkerKiller(client, tmp_path / "there" / "rows.jsonl", after)
        killer.start()
        result = export(folder, tmp_path / "there", f"--scheduler={address}", *more)
        killer.join(1)
        assert killer.killed
    assert result.exit_code == 0, (result.stderr, result.exception)
    alone = export(folder, tmp_path / "alone", "--jobs=1", *more)
    assert alone.exit_code == 0, (alone.stderr, alone.exception)
    rows = rows_of(tmp_path / "there")
    assert len(rows) == len({row["name"] for row in rows}) == 2 * programs
    assert files_of(rows) == files_of(rows_of(tmp_path / "alone"))
    assert len(files_of(rows)) == 2 * programs


@pytest.fixture
def folder_of(programs, tmp_path):
    """Link so many of the programs into a directory of their own."""

    def folder(number):
        source, found = programs(number), tmp_path / "own"
        found.mkdir()
        for path in sorted(source.iterdir()):
            if int(path.stem[3:]) < number:
                (found / path.name).symlink_to(path)
        return found

    return folder


def test_a_worker_that_dies_costs_nothing(folder_of, tmp_path, here):
    check_a_worker_that_dies(folder_of(3), tmp_path, 3, 2, "--no-verify")


def test_a_worker_that_dies_among_many_costs_nothing(folder_of, tmp_path, here):
    check_a_worker_that_dies(folder_of(24), tmp_path, 24, 7)


def test_a_job_that_kills_every_worker_is_a_row(folder_of, tmp_path, here, monkeypatch):
    """The scheduler gives up on it after as many deaths as it is configured to."""
    import dask

    from safe_arm.jobs import cluster as cluster_module

    monkeypatch.setattr(cluster_module, "_run", end_this_worker)
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}), cluster(1) as (address, _):
        result = export(folder_of(1), tmp_path / "there", f"--scheduler={address}", targets=("tosa",))
    assert result.exit_code == 1, (result.stderr, result.exception)
    (row,) = rows_of(tmp_path / "there")
    assert row["error"].startswith("KilledWorker: ")
    assert not row["result"]
    assert "1 row: 0 with a result, 1 failed" in result.stdout


def end_this_worker(job):
    os._exit(9)


def test_jobs_that_need_more_than_a_worker_declares_run_one_by_one(job):
    """Two threads, and memory for one: they never run at a time."""
    from safe_arm.jobs.cluster import declared_memory, run_there

    with cluster(1, threads_per_worker=2, resources={"memory": 10}) as (_, client):
        assert declared_memory(client) == 10
        jobs = [job(name=f"job{index}", memory=memory) for index, memory in enumerate((6, 6, 1000))]
        ends = [(each.name, ended.result) for each, ended in run_there(jobs, client)]
    assert sorted(ends) == [("job0", True), ("job1", True), ("job2", True)]


def refused(result, *says):
    assert result.exit_code == 2, (result.output, result.exception)
    (line,) = result.stderr.splitlines()[-1:]
    for text in says:
        assert text in line


def test_no_scheduler_is_one_line(folder_of, tmp_path, monkeypatch):
    from safe_arm.jobs import cluster as cluster_module

    monkeypatch.setattr(cluster_module, "PATIENCE", 1)
    result = export(folder_of(1), tmp_path / "there", "--scheduler=tcp://127.0.0.1:1")
    refused(result, "no Dask scheduler answers at 'tcp://127.0.0.1:1'", "dask scheduler")


@pytest.mark.parametrize("address", ["nonsense", "http://127.0.0.1:1"])
def test_an_address_that_is_none_is_one_line(folder_of, tmp_path, monkeypatch, address):
    from safe_arm.jobs import cluster as cluster_module

    monkeypatch.setattr(cluster_module, "PATIENCE", 1)
    refused(export(folder_of(1), tmp_path / "there", f"--scheduler={address}"), "no Dask scheduler answers at")


def test_without_dask_it_says_what_to_install(folder_of, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "distributed", None)
    result = export(folder_of(1), tmp_path / "there", "--scheduler=tcp://127.0.0.1:1")
    refused(result, "--scheduler needs Dask: \"pip install 'safe-arm[cluster]'\"")


def test_no_workers_is_one_line(folder_of, tmp_path):
    with cluster(0) as (address, _):
        refused(export(folder_of(1), tmp_path / "there", f"--scheduler={address}"), "the scheduler has no workers")


def complaint():
    return "it has no compiler"


def old_state(folder, probe):
    return {"torch": "1.0"}, True, ""


def test_a_worker_that_cannot_do_it_is_named(tmp_path, monkeypatch):
    from safe_arm.core.errors import UsageError
    from safe_arm.jobs import cluster as cluster_module

    with cluster(1, processes=False) as (_, client):
        cluster_module.check_workers(client, tmp_path, str)
        with pytest.raises(UsageError, match=r"^worker \S+: it has no compiler$"):
            cluster_module.check_workers(client, tmp_path, complaint)
        with pytest.raises(UsageError, match=r"^worker \S+ does not see '.*nowhere'; give a directory that all"):
            cluster_module.check_workers(client, tmp_path / "nowhere", str)
        with pytest.raises(UsageError, match=r"^worker \S+: ZeroDivisionError: .*; install this safe_arm in it$"):
            cluster_module.check_workers(client, tmp_path, lambda: str(1 / 0))
        monkeypatch.setattr(cluster_module, "_state", old_state)
        with pytest.raises(UsageError, match=r"^worker \S+ has torch 1\.0; install what is here: python "):
            cluster_module.check_workers(client, tmp_path, str)


def test_what_is_there_is_not_run_again(folder_of, tmp_path, here):
    """A run of which the last line was cut short goes on with that job alone, on a cluster or here."""
    folder = folder_of(2)
    assert export(folder, tmp_path / "there", "--jobs=2", targets=("tosa",)).exit_code == 0
    path = tmp_path / "there" / "rows.jsonl"
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{second[:40]}")
    with cluster(1) as (address, _):
        result = export(folder, tmp_path / "there", f"--scheduler={address}", targets=("tosa",))
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert "1 of 2 are in" in result.stderr
    assert "export 1 of 2, tcp://" in result.stderr
    rows = rows_of(tmp_path / "there")
    assert [row["name"] for row in rows] == [json.loads(line)["name"] for line in (first, second)]
    assert files_of(rows) == files_of([json.loads(line) for line in (first, second)])
