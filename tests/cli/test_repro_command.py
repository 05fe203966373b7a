"""``safe-arm repro``: one script for each part refused or demoted, and nothing else."""

import re
from functools import partial

import pytest


@pytest.fixture
def repro(files):
    """Run ``repro`` into the directory that is otherwise the output's."""
    return partial(files.run, command="repro", output=files.output.parent)


def test_a_refused_island_has_a_script(repro, files):
    result = repro()
    (script,) = files.output.parent.iterdir()
    assert re.fullmatch(rf"{script}: aten::convolution, aten::relu: relu cannot be fused: .*\n", result.stdout)
    assert "safe_arm" not in re.sub(r"^#.*$", "", script.read_text(), flags=re.MULTILINE)


def test_without_anything_refused_there_is_none(repro, files):
    result = repro("--non-fuseable=propagate")
    assert result.stdout == "nothing is refused by a check or demoted; no script is written\n"
    assert not list(files.output.parent.iterdir())


def test_a_file_is_no_directory(repro, files):
    assert "is a file" in repro(output=files.data, status=2).stderr
