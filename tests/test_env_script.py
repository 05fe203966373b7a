"""``tools/env.sh`` builds an environment once, whoever asks meanwhile, with flock (Linux) and without (macOS)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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


@pytest.mark.parametrize("arguments", [["users"], ["mian"], []], ids=["constraints for users", "a slip", "none"])
def test_what_is_no_lane_is_refused_with_the_lanes(arguments, tmp_path):
    environment = {**os.environ, "SAFE_ARM_CACHE": str(tmp_path / "cache")}
    command = [str(ROOT / "tools" / "env.sh"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert done.stderr.endswith(": docs executorch-1.4 main mutants nets seeds vulkan\n")
    assert not (tmp_path / "cache").exists()
