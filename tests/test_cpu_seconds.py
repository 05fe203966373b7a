"""A test that takes too much CPU without being listed as slow fails the session, and the slowest are named."""

import subprocess
import sys
from pathlib import Path

import cpu_seconds
import pytest

SUPPORT = Path(cpu_seconds.__file__).parent
TESTS = """
import pytest, subprocess, sys, time

def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass

def test_quick(): pass
def test_of_its_own(): busy(0.3)
def test_in_a_child():
    code = "import time\\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
def test_asleep(): time.sleep(0.3)
@pytest.mark.slow
def test_listed(): busy(0.3)
"""


def session(folder, *options):
    (folder / "test_some.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: listed\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "cpu_seconds", "-p", "no:cacheprovider", *options]
    environment = {"PYTHONPATH": str(SUPPORT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_what_is_over_the_limit_fails_and_is_named(tmp_path, workers):
    done = session(tmp_path, "--cpu-limit", "0.05", *workers)
    assert done.returncode == 1, done.stdout
    shown = done.stdout.partition("CPU seconds of the slowest tests")[2]
    assert shown.index("test_of_its_own") < shown.index("5 passed")
    over = shown.partition("not listed in tests/slow.txt:\n")[2]
    assert "test_of_its_own" in over
    assert "test_in_a_child" in over
    assert not any(name in over.partition("passed")[0] for name in ("test_quick", "test_asleep", "test_listed"))


def test_without_a_limit_the_twenty_slowest_are_only_named():
    measured = cpu_seconds.CpuSeconds(0)
    measured.seconds = {str(number): float(number) for number in range(30)}
    assert measured.over() == []
    assert [name for name, _ in measured.slowest()] == [str(number) for number in range(29, 9, -1)]
    assert next(iter(measured.lines())) == "   29.0 s  29"


def test_a_slow_machine_has_a_longer_limit(monkeypatch):
    monkeypatch.setattr(cpu_seconds, "_fixed_work", lambda: 3 * cpu_seconds.REFERENCE)
    measured = cpu_seconds.CpuSeconds(1)
    measured.seconds = {"a": 2.9, "b": 3.1}
    assert measured.over() == ["b"]


def test_so_has_one_that_is_slow_while_the_tests_run(monkeypatch):
    monkeypatch.setattr(cpu_seconds, "_fixed_work", lambda: cpu_seconds.REFERENCE)
    measured = cpu_seconds.CpuSeconds(1)
    report = pytest.TestReport("a", ("a", 0, "a"), {}, "passed", None, "call")
    report.user_properties = [("cpu_seconds", 2.9), ("slowness", 3.0)]
    measured.take(report)
    assert measured.over() == []
    assert measured.slowness == 3.0
