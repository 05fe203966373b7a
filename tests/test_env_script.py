"""``tools/env.sh`` prints an environment's interpreter, one at a time, with flock (Linux) and without (macOS)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USED = "bash cat cut dirname echo env grep ln ls mkdir rm rmdir sed sha256sum sleep touch xargs".split()


@pytest.fixture(params=["flock", "no flock"])
def environment(request, tmp_path):
    """A PATH of the tools it uses, and a cache in which the lane's environment is complete."""
    (tmp_path / "bin").mkdir()
    for tool in (*USED, *(["flock"] if request.param == "flock" else [])):
        if (found := shutil.which(tool)) is None:
            pytest.skip(f"there is no {tool} here")
        (tmp_path / "bin" / tool).symlink_to(found)
    return {**os.environ, "PATH": str(tmp_path / "bin"), "SAFE_ARM_CACHE": str(tmp_path / "cache")}


def start(environment):
    command = [str(ROOT / "tools" / "env.sh"), "main"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_at_once_get_the_same_one_after_the_other(environment, tmp_path):
    python = tmp_path / "python"  # instead of an interpreter, what notes that it builds, slowly
    python.write_text(
        '#!/bin/bash\n[ "$1 $2" = "-m venv" ] || exit 0\n'
        f'echo begun >> {tmp_path}/log; sleep 1; mkdir -p "$3/bin"; ln -s {python} "$3/bin/python"
'
        f"echo ended >> {tmp_path}/log
"
    )
    python.chmod(0o755)
    both = [start({**environment, "PYTHON": str(python)}) for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    assert outputs[0][0].endswith("/bin/python\n")
    assert (tmp_path / "log").read_text() == "begun\nended\n"  # the second found it complete
    assert not list((tmp_path / "cache").glob("*.lock.d"))
