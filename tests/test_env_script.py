"""``tools/env.sh`` builds an environment once, whoever asks meanwhile, with flock (Linux) and without (macOS)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from interpreter import ROOT

USED = [
    "bash", "cat", "cut", "dirname", "echo", "env", "grep", "ln", "ls", "mkdir", "rm", "rmdir", "sed", "sha256sum",
    "sleep", "touch", "xargs",
]  # fmt: skip
#: Stands in for the interpreter that makes an environment, and for the one in it.
PYTHON = """#!/bin/bash
[ "$1 $2" = "-m venv" ] || exit 0
echo begun >> "$LOG"; sleep 1
mkdir -p "$3/bin"; ln -s "$0" "$3/bin/python"
echo ended >> "$LOG"
"""
#: Waits less long than it is asked to.
SLEEP = f"#!/bin/bash\nexec {shutil.which('sleep')} 0.5\n"


@pytest.mark.parametrize("tools", [[*USED, "flock"], USED], ids=["flock", "no flock"])
def test_two_at_once_build_one_environment(tools, tmp_path):
    (tmp_path / "bin").mkdir()
    for tool in tools:
        if (found := shutil.which(tool)) is None:
            pytest.skip(f"there is no {tool} here")
        (tmp_path / "bin" / tool).symlink_to(found)
    (tmp_path / "bin" / "sleep").unlink()
    for path, script in ((tmp_path / "python", PYTHON), (tmp_path / "bin" / "sleep", SLEEP)):
        path.write_text(script)
        path.chmod(0o755)
    environment = {
        **os.environ, "PATH": str(tmp_path / "bin"), "SAFE_ARM_CACHE": str(tmp_path / "cache"),
        "PYTHON": str(tmp_path / "python"), "LOG": str(tmp_path / "log"),
    }  # fmt: skip
    command = [str(ROOT / "tools" / "env.sh"), "main"]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1]
    assert outputs[0].endswith("/bin/python\n")
    assert (tmp_path / "log").read_text() == "begun\nended\n"
    assert not list((tmp_path / "cache").glob("*.lock.d"))


def script(*arguments, **environment):
    command = [str(ROOT / "tools" / "env.sh"), *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [["users"], ["mian"], []], ids=["constraints for users", "a slip", "none"])
def test_what_is_no_lane_is_refused_with_the_lanes(arguments, tmp_path):
    done = script(*arguments, SAFE_ARM_CACHE=str(tmp_path / "cache"))
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert done.stderr.endswith(": docs executorch-1.4 litert main mutants nets seeds vulkan\n")
    assert not (tmp_path / "cache").exists()


@pytest.fixture
def built(tmp_path):
    """Run the script with a stand-in for the interpreter, and give what it printed and the pins it installed."""
    (tmp_path / "python").write_text(PYTHON.replace("; sleep 1", ""))
    (tmp_path / "python").chmod(0o755)
    environment = {"SAFE_ARM_CACHE": str(tmp_path / "cache"), "PYTHON": str(tmp_path / "python")}

    def run(*pins, lane="main"):
        done = script(lane, *map(str, pins), LOG=str(tmp_path / "log"), **environment)
        assert done.returncode == 0, done.stderr
        folder = Path(done.stdout.strip()).parents[1]
        kept = folder.with_name(f"{folder.name}.txt")
        return folder, kept.read_text().splitlines() if kept.exists() else None

    return run


def pins_of(*lanes):
    lines = []
    for lane in lanes:
        lines += (ROOT / "constraints" / f"{lane}.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("-r ")]


def test_a_pin_takes_the_place_of_the_lane_s_in_an_environment_of_its_own(built, tmp_path):
    wheel = tmp_path / "tosa_tools-2099.1.0-py3-none-any.whl"
    wheel.write_bytes(b"one")
    plain, nothing = built()
    assert nothing is None
    folder, lines = built("ethos-u-vela==9.9", wheel)
    assert folder != plain
    left = [line for line in pins_of("main") if not line.startswith(("ethos-u-vela==", "tosa-tools=="))]
    assert len(left) == len(pins_of("main")) - 2
    assert lines == [*left, "ethos-u-vela==9.9", str(wheel)]
    assert built("ethos-u-vela==9.9", wheel)[0] == folder
    wheel.write_bytes(b"another of that name")
    assert built("ethos-u-vela==9.9", wheel)[0] != folder


def test_a_lane_that_includes_another_is_made_flat(built):
    _, lines = built("torch==9.9", lane="nets")
    assert lines == [line for line in pins_of("nets", "main") if not line.startswith("torch==")] + ["torch==9.9"]
