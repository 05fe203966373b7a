"""Export, baseline, change a layer, check fails and names it, update, passes: through the command line."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest
import torch
from command_line import invoke, refused
from small import Built

import safe_arm.gate

SCHEMA = json.loads((Path(safe_arm.gate.__file__).parent / "baseline.schema.json").read_text())


def net(between):
    """Two convolutions with something between them."""
    torch.manual_seed(0)
    first, last = torch.nn.Conv2d(4, 4, 3), torch.nn.Conv2d(4, 4, 1)
    return Built(lambda m, x: m.last(m.between(m.first(x))), first=first, between=between, last=last)


class Sort(torch.nn.Module):
    """What no Arm backend takes."""

    def forward(self, x):
        return torch.sort(x, 1)[0]


@pytest.fixture
def folder(tmp_path):
    samples = np.random.default_rng(0).uniform(-1, 1, (3, 1, 4, 8, 8)).astype("float32")
    np.savez(tmp_path / "data.npz", x=samples)
    return tmp_path


def save(folder, between):
    torch.export.save(torch.export.export(net(between).eval(), (torch.rand(1, 4, 8, 8),)), folder / "net.pt2")


def run(folder, *options, target="ethos-u55-128", command="check"):
    given = [command, folder / "net.pt2", f"--target={target}", f"--calibrate={folder / 'data.npz'}", "--no-verify"]
    return invoke(*given, *options)


def error(result):
    """The one line of a run that failed."""
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("Error: "))
    return line


def test_the_whole_way(folder):
    baseline, xml = folder / "baseline.json", folder / "gate.xml"
    against = f"--against={baseline}"
    save(folder, torch.nn.ReLU())
    assert run(folder, f"--output={folder / 'net.pte'}", command="export").exit_code == 0
    written = run(folder, against, "--update")
    assert written.exit_code == 0, (written.output, written.exception)
    kept = json.loads(baseline.read_text())
    jsonschema.validate(kept, SCHEMA)
    assert kept["figures"]["flash_bytes"] == (folder / "net.pte").stat().st_size
    assert {"cycles", "sram_bytes", "planned_bytes"} < set(kept["figures"])

    same = run(folder, against, f"--junit={xml}")
    assert same.exit_code == 0, (same.output, same.exception)
    assert f"{baseline}: none of 8 figures worse\n" in same.stdout
    assert ElementTree.parse(xml).getroot().attrib["failures"] == "0"

    save(folder, Sort())
    worse = run(folder, against, f"--junit={xml}")
    assert worse.exit_code == 1
    line = error(worse)
    assert "delegates 1 -> 2 (+1), since aten::sort in between, refused: " in line
    assert "refused 0 -> 1 (+1), since aten::sort in between" in line
    assert line.endswith("--update accepts it")
    assert "worse           refused 0 -> 1" in worse.stdout
    root = ElementTree.parse(xml).getroot()
    failures = {case.get("name"): case.find("failure") for case in root.iter("testcase")}
    assert len(failures) == int(root.get("tests")) == 8
    assert "aten::sort in between" in failures["refused"].get("message")
    assert {case.get("classname") for case in root.iter("testcase")} == {"net.ethos-u55-128"}

    assert run(folder, against, "--update").exit_code == 0
    again = run(folder, against)
    assert again.exit_code == 0, (again.output, again.exception)


def test_a_wider_layer_is_named_by_what_it_costs(folder):
    against = f"--against={folder / 'baseline.json'}"
    save(folder, torch.nn.ReLU())
    assert run(folder, against, "--update").exit_code == 0
    save(folder, torch.nn.Conv2d(4, 4, 7, padding=3))
    line = error(run(folder, against))
    assert "Conv2d between (aten::convolution), which is new" in line
    assert " cycles " in line
    assert "flash" in line
    assert " delegated " not in line, "all of it is delegated still"


def test_a_noisier_net_is_named_by_where_it_gets_noisy(folder):
    path = folder / "baseline.json"
    save(folder, torch.nn.ReLU())
    program = torch.export.load(folder / "net.pt2")
    program.state_dict["first.weight"].data[0] *= 100
    torch.export.save(program, folder / "net.pt2")
    assert run(folder, f"--against={path}", "--update", "--accuracy", target="tosa").exit_code == 0
    line = error(run(folder, f"--against={path}", "--per-tensor", target="tosa"))  # measured without being asked
    assert re.search(
        r": SQNR [\d.]+ -> [\d.]+ dB \(-[\d.]+\), since Conv2d first \(aten::convolution\), [\d.]+ -> ", line
    )
    edited = json.loads(path.read_text())
    edited["allowed"]["sqnr_db"] = 60
    path.write_text(json.dumps(edited))
    assert run(folder, f"--against={path}", "--per-tensor", target="tosa").exit_code == 0
    assert run(folder, f"--against={path}", "--update", target="tosa").exit_code == 0
    kept = json.loads(path.read_text())
    assert "sqnr_db" in kept["figures"], "what is measured goes on being measured"
    assert kept["allowed"]["sqnr_db"] == 60, "what is allowed is the team's"


def test_cycles_by_another_vela_are_said_to_be_and_are_no_failure(folder):
    path, xml = folder / "baseline.json", folder / "gate.xml"
    save(folder, torch.nn.ReLU())
    assert run(folder, f"--against={path}", "--update").exit_code == 0
    kept = json.loads(path.read_text())
    here = kept["versions"]["ethos-u-vela"]
    cycles = kept["figures"]["cycles"]
    kept["versions"]["ethos-u-vela"] = "5.0.0"
    kept["figures"]["cycles"] = 10
    path.write_text(json.dumps(kept))
    result = run(folder, f"--against={path}", f"--junit={xml}")
    assert result.exit_code == 0, (result.output, result.exception)
    assert f"{path}: none of 8 figures worse, 1 not compared\n" in result.stdout
    says = f"cycles 10 -> {cycles:,}: another estimator, Vela 5.0.0 -> {here}"
    assert f"not compared    {says}; --update writes a baseline of the new one\n" in result.stdout
    assert says in xml.read_text().replace("&gt;", ">")
    assert run(folder, f"--against={path}", "--update").exit_code == 0
    assert json.loads(path.read_text())["figures"]["cycles"] == cycles


def test_better_is_said_and_no_failure(folder):
    against = f"--against={folder / 'baseline.json'}"
    save(folder, Sort())
    assert run(folder, against, "--update").exit_code == 0
    save(folder, torch.nn.ReLU())
    result = run(folder, against)
    assert result.exit_code == 0, (result.output, result.exception)
    assert "changed         refused 1 -> 0 (-1)\n" in result.stdout


def test_the_json_document_has_it_and_nothing_else_is_in_it(folder):
    schema = json.loads((Path(safe_arm.cli.__file__).parent / "check.schema.json").read_text())
    against = f"--against={folder / 'baseline.json'}"
    save(folder, torch.nn.ReLU())
    assert run(folder, against, "--update", target="tosa").exit_code == 0
    found = json.loads(run(folder, against, "--json", target="tosa").stdout)
    jsonschema.validate(found, schema)
    assert {each["name"] for each in found["gate"]} == {
        "delegated", "refused", "demoted", "delegates", "planned memory", "flash",
    }  # fmt: skip
    assert "gate" not in json.loads(run(folder, "--json", target="tosa").stdout)


def test_limits_are_in_the_xml_too(folder):
    xml = folder / "gate.xml"
    save(folder, torch.nn.ReLU())
    result = run(folder, "--max-flash=10", "--fail-under=1", f"--junit={xml}", target="tosa")
    assert result.exit_code == 1
    assert "more than --max-flash 10" in error(result)
    cases = {case.get("name"): case.find("failure") is not None for case in ElementTree.parse(xml).iter("testcase")}
    assert cases == {"fail-under": False, "max-flash": True, "demotions": False}


def test_a_baseline_of_another_schema(folder):
    path = folder / "baseline.json"
    save(folder, torch.nn.ReLU())
    assert run(folder, f"--against={path}", "--update", target="tosa").exit_code == 0
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 7'))
    refused(run(folder, f"--against={path}", target="tosa"), "is of schema 7, and this safe-arm reads 1; --update")
    assert run(folder, f"--against={path}", "--update", target="tosa").exit_code == 0
    assert json.loads(path.read_text())["schema_version"] == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "does not exist; --update writes it"),
        ("{", "cannot be read (Expecting"),
        ("[]", "is no baseline of safe-arm check"),
        ('{"schema_version": 1, "nodes": []}', "is no baseline of safe-arm check"),
        ('{"kind": "safe_arm baseline", "schema_version": 1}', "cannot be read (KeyError('figures'))"),
    ],
)
def test_what_is_no_baseline(folder, content, says):
    path = folder / "baseline.json"
    save(folder, torch.nn.ReLU())
    if content is not None:
        path.write_text(content)
    refused(run(folder, f"--against={path}"), says)


def test_a_report_is_not_written_over(folder):
    path = folder / "report.json"
    path.write_text('{"schema_version": 1}')
    save(folder, torch.nn.ReLU())
    refused(run(folder, f"--against={path}", "--update"), "is no baseline of safe-arm check")
    assert path.read_text() == '{"schema_version": 1}'


def test_a_baseline_of_another_target(folder):
    path = folder / "baseline.json"
    save(folder, torch.nn.ReLU())
    assert run(folder, f"--against={path}", "--update", target="tosa").exit_code == 0
    refused(run(folder, f"--against={path}"), "the baseline is of target tosa, not ethos-u55-128")


def test_update_needs_a_baseline(folder):
    save(folder, torch.nn.ReLU())
    refused(run(folder, "--update"), "--update writes the baseline of --against FILE.json")
