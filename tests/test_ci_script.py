"""``.ci/run`` runs every target it names, shows what each says, and fails with the first that fails."""

import os
import shutil
import subprocess
import time

import pytest
from interpreter import ROOT

#: Stands in for make: says what it is asked for, fails at one target, is long at another.
MAKE = """#!/bin/bash
echo "made $1"
[ "$1" != "$SLEEPS" ] || exec sleep "$SLEEP"
[ "$1" != "$FAILS" ]
"""


@pytest.fixture
def ci(tmp_path):
    """Run the script with stand-ins for make and for the environments."""
    for name, text in (
        (".ci/run", (ROOT / ".ci" / "run").read_text()),
        ("tools/env.sh", "#!/bin/bash\n"),
        ("bin/make", MAKE),
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(**environment):
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            [tmp_path / ".ci" / "run"], env={**os.environ, "PATH": path, "TMPDIR": str(tmp_path), **environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60,
        )  # fmt: skip

    yield run
    assert not list(tmp_path.glob("tmp.*"))


def targets():
    lines = (line.split() for line in (ROOT / ".ci" / "run").read_text().splitlines())
    return [words[1] for words in lines if words[:1] == ["timed"]]


def test_every_target_runs_and_is_timed(ci):
    done = ci()
    assert done.returncode == 0, done.stdout
    assert len(targets()) >= 9
    makefile = "".join((ROOT / name).read_text() for name in ("Makefile", "tools/targets.mk"))
    for target in targets():
        assert f"\n{target}:" in makefile
        assert f"made {target}\n" in done.stdout
        assert f" s, status 0: make {target}" in done.stdout.partition("in all, status 0")[2]


@pytest.mark.parametrize("target", ["test", "test-browser", "test-1.4-core"])
def test_one_that_fails_fails_it_and_is_named(ci, target):
    done = ci(FAILS=target)
    assert done.returncode == 1
    assert f"made {target}\n" in done.stdout
    assert f" s, status 1: make {target}" in done.stdout.partition("in all, status 1")[2]


def runs(command):
    return subprocess.run(["pgrep", "-f", f"^{command}$"], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_what_runs_beside_ends_with_the_rest(ci):
    seconds = str(6000 + os.getpid() % 1000)  # another worker's is another
    done = ci(FAILS="test-corpus", SLEEPS="test-vulkan", SLEEP=seconds)
    assert done.returncode == 1
    assert "made test-vulkan\n" in done.stdout
    assert "made test-proof" not in done.stdout
    if not shutil.which("pgrep"):
        return
    end = time.monotonic() + 10  # a process that has been told to end has ended a moment later
    while runs(f"sleep {seconds}") and time.monotonic() < end:
        time.sleep(0.05)
    assert not runs(f"sleep {seconds}")
