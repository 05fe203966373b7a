"""Commands that are forks of one process behave as processes of their own."""

import os
import subprocess

import preloaded
import pytest

import safe_arm

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    with preloaded.commands(tmp_path_factory.mktemp("served") / "bin") as folder:
        yield folder


@pytest.fixture
def run(path, tmp_path):
    """Run a line of shell with the commands first on PATH."""

    def shell(line):
        environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "OF_THE_SHELL": "seen"}
        how = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 120}
        done = subprocess.run(["bash", "-c", line], **how)
        return done.returncode, done.stdout, done.stderr

    return shell


@pytest.mark.parametrize(
    ("line", "ended"),
    [
        ("python -c 'print(1)'", (0, "1\n", "")),
        ("python -c 'import sys; sys.exit(3)'", (3, "", "")),
        ("python -c 'import sys; sys.exit(\"no\")'", (1, "", "no\n")),
        ("echo in | python -c 'import sys; print(sys.stdin.read(), end=\"\")' > f; cat f", (0, "in\n", "")),
        ("python -c 'import os; print(os.environ[\"OF_THE_SHELL\"], os.listdir())'", (0, "seen []\n", "")),
        ("echo 'import sys; print(sys.argv)' > a.py; python a.py b", (0, "['a.py', 'b']\n", "")),
        ("echo 'import sys; print(sys.argv[1:])' > a.py; python -m a b", (0, "['b']\n", "")),
        ("safe-arm --version", (0, f"safe-arm, version {safe_arm.__version__}\n", "")),
    ],
)
def test_streams_arguments_and_status_are_its_own(line, ended, run):
    assert run(line) == ended


def test_an_exception_wrong_use_and_a_kill_end_with_their_status(run):
    status, _, error = run("python -c '1 / 0'")
    assert status == 1
    assert error.endswith("ZeroDivisionError: division by zero\n")
    status, _, error = run("safe-arm check nowhere.pt2 --target tosa")
    assert status == 2
    assert error.startswith("Error: ")
    status, _, _ = run("python -c 'import os; os.kill(os.getpid(), 9)'; exit $?")
    assert status == 137


def test_one_finds_nothing_of_another(run):
    change = 'import torch, os; torch.manual_seed = None; os.environ["LEFT"] = "yes"'
    look = 'import torch, os; print(torch.manual_seed is None, "LEFT" in os.environ)'
    assert run(f"python -c '{change}'; python -c '{look}'")[1] == "False False\n"
