"""docs/gate.md: its workflow passes on what was committed; its commands are run by tools/doc_pages.py."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from command_line import invoke

DOCS = Path(__file__).parents[2] / "docs"


def fenced(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("gate")
    net = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3), torch.nn.ReLU())
    torch.export.save(torch.export.export(net.eval(), (torch.rand(1, 4, 8, 8),)), path / "model.pt2")
    np.savez(path / "samples.npz", np.random.default_rng(0).standard_normal((4, 1, 4, 8, 8), dtype=np.float32))
    (path / "ci").mkdir()
    return path


def run(line):
    program, *arguments = shlex.split(line)
    assert program == "safe-arm"
    return invoke(*arguments)


def test_the_workflow_passes_on_what_was_committed(folder, monkeypatch):
    monkeypatch.chdir(folder)
    ((_, job),) = yaml.safe_load(fenced("gate", "yaml")[0])["jobs"].items()
    steps = [step["run"] for step in job["steps"] if step.get("run", "").startswith("safe-arm")]
    assert len(steps) == 2
    target = "vgf"
    assert target in job["strategy"]["matrix"]["target"]
    check, export = (step.replace("${{ matrix.target }}", target) for step in steps)
    assert run(f"{check} --update").exit_code == 0
    assert run(check).exit_code == 0
    assert run(export).exit_code == 0
    assert {"gate.xml", "gate.html", "model.pte", "kernels.yaml"} <= {path.name for path in folder.iterdir()}
