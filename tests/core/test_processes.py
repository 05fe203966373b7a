"""A process has an end: its own, or the time limit's, together with all that it started."""

import os
import select
import signal
import sys
import time
from pathlib import Path

import pytest

import safe_arm
from safe_arm.core.processes import run, run_python


def python(code, **options):
    return run([sys.executable, "-c", code], **{"seconds": 60, **options})


@pytest.mark.parametrize(
    ("code", "status", "last_words"),
    [
        pytest.param("print('one'); print('two')", 0, "two", id="prints"),
        pytest.param("import sys; print('out'); sys.exit('err\\nlast')", 1, "last", id="stderr goes first"),
        pytest.param("import sys; sys.exit(7)", 7, "exits 7", id="exits without a word"),
        pytest.param("import os; os.kill(os.getpid(), 9)", -9, "ended by signal 9", id="is killed"),
        pytest.param("import os; os.write(1, b'\\xff')", 0, "\ufffd", id="prints what is no text"),
        pytest.param("import sys; print(repr(sys.stdin.read()))", 0, "''", id="reads"),
    ],
)
def test_how_it_ended(code, status, last_words):
    ended = python(code)
    assert (ended.status, ended.last_words, ended.good) == (status, last_words, status == 0)
    assert not ended.timed_out


@pytest.mark.parametrize(
    ("content", "says"), [(None, "No such file or directory"), ("no program", "Exec format error")]
)
def test_what_cannot_be_started_says_why(tmp_path, content, says):
    if content:
        (tmp_path / "tool").write_text(content)
        (tmp_path / "tool").chmod(0o755)
    ended = run([tmp_path / "tool"], seconds=60)
    assert (ended.status, ended.last_words) == (1, says)


def test_environment_and_folder(tmp_path):
    code = "import os; print(os.getcwd(), os.environ.get('SAFE_ARM_TEST'))"
    ended = python(code, folder=tmp_path, environment={**os.environ, "SAFE_ARM_TEST": "here"})
    assert ended.stdout == f"{tmp_path.resolve()} here\n"


@pytest.fixture
def lives(tmp_path):
    """Code by which a process shows that it lives, and a function that asserts that it did and soon does no more."""
    path = tmp_path / "lives"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def ended():
        assert os.read(descriptor, 1) == b"x"
        assert select.select([descriptor], [], [], 3)[0], "the last writer's end closes the pipe"
        assert os.read(descriptor, 1) == b""

    yield f"import os; os.write(os.open({str(path)!r}, os.O_WRONLY), b'x'); ", ended
    os.close(descriptor)


def test_it_is_ended_with_what_it_started_and_keeps_what_it_printed(lives):
    """A grandchild that holds the pipes open would be waited for."""
    child = f"{lives[0]}import time; time.sleep(8)"
    began = time.monotonic()
    code = f"import subprocess, sys; print('begun', flush=True); subprocess.run([sys.executable, '-c', {child!r}])"
    ended = python(code, seconds=3)
    assert time.monotonic() - began < 8
    assert ended.timed_out
    assert not ended.good
    assert ended.stdout == "begun\n"
    assert ended.last_words == "did not finish within 3 s"
    lives[1]()


def test_an_interrupt_ends_it_too(lives):
    code = f"{lives[0]}import signal, time; os.kill({os.getpid()}, signal.SIGINT); time.sleep(8)"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            python(code)
    finally:
        signal.signal(signal.SIGINT, before)
    lives[1]()


def test_the_same_safe_arm_is_in_reach(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    ended = run_python("-c", "import safe_arm; print(safe_arm.__file__)", seconds=60)
    assert Path(ended.stdout.strip()) == Path(safe_arm.__file__)
