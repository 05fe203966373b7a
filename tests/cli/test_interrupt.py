"""An interrupt that a library swallows ends the command all the same, before the next step."""

import os
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner

from safe_arm.cli import interrupt
from safe_arm.cli.main import cli
from safe_arm.cli.progress import Steps

ROOT = Path(__file__).parents[2]


@pytest.fixture
def listening(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(interrupt, "_asked", False)
    interrupt.listen()
    yield
    signal.signal(signal.SIGINT, before)


def swallowed():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.usefixtures("listening")
def test_the_step_after_a_swallowed_interrupt_is_not_begun():
    begun = []
    steps = Steps(StringIO())
    with steps.step("lower"):
        assert swallowed()
    with pytest.raises(KeyboardInterrupt), steps.step("write"):
        begun.append("write")
    assert begun == []


@pytest.mark.usefixtures("listening")
def test_without_an_interrupt_steps_follow_each_other():
    steps = Steps(StringIO())
    with steps.step("lower"), steps.step("write"):
        interrupt.stop_if_asked()


def test_an_interrupt_of_code_that_is_text_ends_with_130_too(tmp_path):
    """Python would end itself by SIGINT, though the command caught the interrupt and said so."""
    (tmp_path / "interrupted.py").write_text(
        "from safe_arm.cli.main import cli\n"
        "@cli.command()\n"
        "def wait():\n"
        "    exec('raise KeyboardInterrupt(\"nothing was written\")')\n"
        "cli(['wait'])\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-m", "interrupted"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "Interrupted; nothing was written.\n")


@pytest.mark.parametrize(
    ("where", "what", "written"),
    [
        pytest.param("cli.pipeline", "to_edge_transform_and_lower", (), id="before anything"),
        pytest.param("cli.pipeline", "rendered", ("scripts", "net.pte"), id="before the first report"),
        pytest.param("report.terminal", "print_report", ("scripts", "net.pte", "r.json"), id="before the summary"),
    ],
)
@pytest.mark.parametrize("old", [False, True], ids=["new files", "files that were there before"])
def test_what_is_written_is_said(files, monkeypatch, where, what, written, old):
    """At 56e74fc it is "nothing was written" in every case."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    folder = files.output.parent
    report, scripts = folder / "r.json", folder / "scripts"
    if old:
        scripts.mkdir()
        for path in (files.output, report, scripts / "old.py"):
            path.write_text("old")
    monkeypatch.setattr(f"safe_arm.{where}.{what}", interrupted)
    result = files.run("--no-verify", f"--report={report}", f"--repro-dir={scripts}")
    assert result.exit_code == 130, result.output
    new = {path for path in (files.output, report, *scripts.glob("*")) if path.exists() and path.read_bytes() != b"old"}
    assert {path.relative_to(folder).parts[0] for path in new} == set(written)
    line = result.stderr.splitlines()[-1]
    if not new:
        assert line == "Interrupted; nothing was written."
    else:
        assert line.startswith("Interrupted; already written: ")
        assert set(line.removeprefix("Interrupted; already written: ").rstrip(".").split(", ")) == set(map(str, new))


def test_a_command_that_may_have_written_anything_says_nothing_of_it(tmp_path):
    """``safe-arm run``: what a script writes is its own."""
    (tmp_path / "script.py").write_text("open('out', 'w').close(); raise KeyboardInterrupt")
    runner = CliRunner()
    with runner.isolated_filesystem(tmp_path):
        result = runner.invoke(cli, ["run", str(tmp_path / "script.py")])
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (130, "Interrupted.")
