"""docs/gate.md: its workflow passes on what was committed; its commands are run by tools/doc_pages.py."""

import re
import shlex

import yaml
from command_line import invoke
from interpreter import ROOT


def run(line):
    program, *arguments = shlex.split(line)
    assert program == "safe-arm"
    return invoke(*arguments)


def test_the_workflow_passes_on_what_was_committed(gate, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ci").mkdir()
    page = (ROOT / "docs" / "gate.md").read_text()
    workflow = re.search(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1]
    ((_, job),) = yaml.safe_load(workflow)["jobs"].items()
    steps = [step["run"] for step in job["steps"] if step.get("run", "").startswith("safe-arm")]
    assert len(steps) == 2
    target = "vgf"
    assert target in job["strategy"]["matrix"]["target"]
    check, export = (step.replace("${{ matrix.target }}", target) for step in steps)
    run(f"{check} --update")
    run(check)
    run(export)
    assert {"gate.xml", "gate.html", "model.pte", "kernels.yaml"} <= {path.name for path in tmp_path.iterdir()}
