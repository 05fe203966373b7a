"""The command line of Arm's Fixed Virtual Platforms. They are not to be had here: a STAND-IN executable takes it."""

import os
import stat
from pathlib import Path

import pytest
from executorch.backends.arm.test import runner_utils

from safe_arm.bundle.fvp import platform_for, run_on
from safe_arm.bundle.verifying import verify_pte

#: Not an FVP: writes down how it was called and prints what ExecuTorch's runner would.
STAND_IN = """#!/bin/sh
printf '%s\\n' "$@" > "$STAND_IN_LOG"
echo "{prints}"
exit {status}
"""
PASSES = "I [executorch:arm_executor_runner.cpp:992 run_model()] TEST: BundleIO index[0] Test_result: PASS"


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Put a stand-in for a platform on PATH; give its arguments afterwards."""
    log = tmp_path / "arguments"
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    monkeypatch.setenv("PATH", os.pathsep.join((str(tmp_path), os.environ["PATH"])))

    def install(name, prints=PASSES, status=0):
        path = tmp_path / name
        path.write_text(STAND_IN.format(prints=prints, status=status))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return lambda: log.read_text().splitlines()

    return install


@pytest.mark.parametrize(
    ("target", "executable", "macs", "cpu"),
    [
        ("ethos-u55-128", "FVP_Corstone_SSE-300_Ethos-U55", "ethosu.num_macs=128", "cpu0"),
        ("ethos-u65-256", "FVP_Corstone_SSE-300_Ethos-U65", "ethosu.num_macs=256", "cpu0"),
        (
            "ethos-u85-512",
            "FVP_Corstone_SSE-320",
            "mps4_board.subsystem.ethosu.num_macs=512",
            "mps4_board.subsystem.cpu0",
        ),
    ],
)
def test_the_command_is_the_one_of_executorch_s_own_tests(stand_in, tmp_path, target, executable, macs, cpu):
    arguments = stand_in(executable)
    platform = platform_for(target)
    assert run_on(platform, tmp_path / "runner.elf", b"bundle", 60) == ""
    given = arguments()
    assert platform.name == executable
    assert macs in given
    (line,) = (each for each in given if each.startswith(f"{cpu}.semihosting-cmd_line="))
    theirs = Path(runner_utils.__file__).read_text()
    names = {given[n + 1].partition("=")[0] for n, each in enumerate(given) if each == "-C"}
    assert {name for name in names if name not in theirs} <= {"mps3_board.uart0.shutdown_on_eot"}
    assert line.endswith("executor_runner -m p.bpte -o out")
    assert len(line) < 256
    assert given[-4:] == ["-a", str(tmp_path / "runner.elf"), "--timelimit", "60"]


@pytest.mark.parametrize(
    ("prints", "status", "problem"),
    [
        ("E TEST: BundleIO index[0] Test_result: FAIL", 0, "the runner's comparison with the expected outputs fails"),
        ("Hard fault", 3, "Hard fault"),
        ("Program complete.", 0, "the runner does not say that its outputs are as expected"),
    ],
    ids=["a wrong output", "a crash", "a runner without bundled programs"],
)
def test_only_what_the_runner_calls_a_pass_is_one(stand_in, tmp_path, prints, status, problem):
    stand_in("FVP_Corstone_SSE-320", prints, status)
    assert run_on(platform_for("ethos-u85-256"), tmp_path / "runner.elf", b"", 60) == problem


@pytest.mark.parametrize("target", ["vgf", "tosa", "ethos-u55", "ethos-u99-128", ""])
def test_other_targets_have_no_platform(target):
    assert platform_for(target) is None


def test_it_is_a_step_of_the_verification(stand_in, ethos_u, tmp_path):
    stand_in("FVP_Corstone_SSE-300_Ethos-U55")
    without, given = (verify_pte(ethos_u.pte, runner=elf).steps[-1] for elf in (None, tmp_path / "runner.elf"))
    assert (without.outcome, given.outcome) == ("not run", "passed")
    assert "--fvp-runner" in without.detail
