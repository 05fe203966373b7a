"""An interrupt that a library swallows ends the command all the same, before the next step."""

import os
import signal
from io import StringIO

import faults
import pytest
from command_line import invoke
from interpreter import ROOT, python

from safe_arm.cli import interrupt
from safe_arm.cli.progress import Steps


def test_the_step_after_a_swallowed_interrupt_is_not_begun(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(interrupt, "_asked", False)
    interrupt.listen()
    steps = Steps(StringIO())
    with steps.step("lower"), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass
    signal.signal(signal.SIGINT, before)
    with pytest.raises(KeyboardInterrupt), steps.step("write"):
        pytest.fail("it is begun")


def test_an_interrupt_of_code_that_is_text_ends_with_130_too(tmp_path):
    """Python would end itself by SIGINT, though the command caught the interrupt and said so."""
    (tmp_path / "interrupted.py").write_text(
        "from safe_arm.cli.main import cli\n"
        "@cli.command()\n"
        "def wait():\n"
        "    exec('raise KeyboardInterrupt(\"nothing was written\")')\n"
        "cli(['wait'])\n"
    )
    done = python("-m", "interrupted", PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}")
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
    folder = files.output.parent
    report, scripts = folder / "r.json", folder / "scripts"
    if old:
        scripts.mkdir()
        for path in (files.output, report, scripts / "old.py"):
            path.write_text("old")
    monkeypatch.setattr(f"safe_arm.{where}.{what}", faults.raising(KeyboardInterrupt))
    result = files.run("--no-verify", f"--report={report}", f"--repro-dir={scripts}", status=130)
    new = {path for path in (files.output, report, *scripts.glob("*")) if path.exists() and path.read_bytes() != b"old"}
    assert {path.relative_to(folder).parts[0] for path in new} == set(written)
    line = result.stderr.splitlines()[-1]
    if not new:
        assert line == "Interrupted; nothing was written."
    else:
        assert line.startswith("Interrupted; already written: ")
        assert set(line.removeprefix("Interrupted; already written: ").rstrip(".").split(", ")) == set(map(str, new))


def test_a_command_that_may_have_written_anything_says_nothing_of_it(tmp_path, monkeypatch):
    """``safe-arm run``: what a script writes is its own."""
    (tmp_path / "script.py").write_text("open('out', 'w').close(); raise KeyboardInterrupt")
    monkeypatch.chdir(tmp_path)
    assert invoke("run", "script.py", status=130).stderr.splitlines()[-1] == "Interrupted."
