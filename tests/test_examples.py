"""The examples run as docs/examples.md shows them; with the stock names put back they are ExecuTorch's own scripts."""

import ast
import re
from importlib.metadata import version
from itertools import pairwise

import examples_page
import pytest
import yaml
from interpreter import ROOT, python

EXAMPLES = ROOT / "examples"
STOCK = {"vgf": ("VgfPartitioner", "VgfQuantizer"), "ethos_u": ("EthosUPartitioner", "EthosUQuantizer")}
SECTIONS = examples_page.sections(examples_page.PAGE.read_text())
#: Sections whose figures are a release's: 1.4 delegates less of one, and the baselines of the other name 1.5.1.
OF_1_5 = ("A script of your own, in mixed precision", "A gate on a `.pt2` in CI")


def titles():
    older = not version("executorch").startswith("1.5.")
    for title in SECTIONS:
        marks = [pytest.mark.skipif(older and title in OF_1_5, reason="prints what 1.5 prints")]
        yield pytest.param(title, marks=marks, id=title)


@pytest.mark.parametrize("title", titles())
def test_it_prints_what_the_page_says(title, tmp_path):
    steps, done = examples_page.run(SECTIONS[title], tmp_path)
    assert examples_page.first_hour.differences(steps, done) == ""
    ratios = re.findall(r"(\d+\.\d) dB to the float net", done[0].output)
    assert all(float(mixed) > float(int8) + 3 for int8, mixed in pairwise(ratios))


def test_every_example_is_on_the_page_as_it_is():
    page = examples_page.PAGE.read_text()
    assert examples_page.with_files(page) == page
    shown = set(re.findall(r'^```python title="(.*)"$', page, re.MULTILINE))
    written = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py")}
    assert shown == written - set(examples_page.WORKED_PATHS)


@pytest.mark.parametrize("name", examples_page.WORKED_PATHS)
def test_the_script_of_a_worked_path_is_what_its_page_explains(name):
    page = examples_page.WORKED_PATHS[name].read_text()
    script = (EXAMPLES / name).read_text()
    assert examples_page.joined_script(page) == script, "python tools/examples_page.py --write 'Export for VGF'"
    assert f"examples/{name}" in page


@pytest.mark.parametrize("path", EXAMPLES.rglob("*.py"), ids=lambda path: path.stem)
def test_it_is_short(path):
    explained_in_parts = path.name in examples_page.WORKED_PATHS
    assert len(path.read_text().splitlines()) <= (120 if explained_in_parts else 80)


@pytest.mark.parametrize("name", STOCK)
def test_the_diff_to_stock_is_the_two_names_and_the_report(name):
    partitioner, quantizer = STOCK[name]
    assert examples_page.diff_to_stock(f"{name}.py").splitlines() == [
        f"-from executorch.backends.arm import {partitioner}, {quantizer}",
        f"+from safe_arm import SafeArmPartitioner, Safe{quantizer}",
        f"-quantizer = {quantizer}(compile_spec)",
        f"+quantizer = Safe{quantizer}(compile_spec)",
        f"-partitioner = {partitioner}(compile_spec)",
        "+partitioner = SafeArmPartitioner(compile_spec)",
        "+print(partitioner.report)",
    ]
    twin = ast.parse(examples_page.stock_twin((EXAMPLES / f"{name}.py").read_text()))
    assert not any("afe" in node.id for node in ast.walk(twin) if isinstance(node, ast.Name))


@pytest.mark.parametrize("name", STOCK)
def test_its_stock_twin_runs(name, tmp_path):
    script = tmp_path / "twin.py"
    script.write_text(examples_page.stock_twin((EXAMPLES / f"{name}.py").read_text()))
    result = python(script.name, cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    (program,) = tmp_path.glob("*.pte")
    assert program.read_bytes()[4:8] == b"ET12"
    assert b"safe_arm" not in program.read_bytes()


def test_the_gate_s_workflow_is_the_docs_and_every_target_of_it_has_a_baseline():
    workflow = (EXAMPLES / "gate" / "workflow.yml").read_text()
    assert f"```yaml\n{workflow}```" in (ROOT / "docs" / "gate.md").read_text()
    ((_, job),) = yaml.safe_load(workflow)["jobs"].items()
    baselines = {path.stem for path in (EXAMPLES / "gate" / "ci").glob("*.json")}
    assert baselines == set(job["strategy"]["matrix"]["target"])
    assert any("export_model.py" in step.get("run", "") for step in job["steps"])


def test_an_example_with_the_lines_of_the_docs_prints_nothing(tmp_path):
    (lines,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/output.md").read_text(), re.DOTALL | re.MULTILINE)
    script = (EXAMPLES / "vgf.py").read_text().replace("print(partitioner.report)", "")
    done = python("-c", lines + script, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
