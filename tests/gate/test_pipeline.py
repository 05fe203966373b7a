"""Export, baseline, change a layer, check fails and names it, update, passes: through the command line."""

import json
import re
from xml.etree import ElementTree

import pytest
import torch
from command_line import refused
from schemas import check_document
from small import Built

#: What no Arm backend takes.
SORT = Built(lambda m, x: torch.sort(x, 1)[0])


def error(result):
    """The one line of a run that failed."""
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("Error: "))
    return line


def test_the_whole_way(gate, tmp_path):
    gate.alone(f"--output={tmp_path / 'net.pte'}", command="export")
    gate.check("--update")
    kept = gate.written()
    check_document(kept, "gate/baseline")
    assert kept["figures"]["flash_bytes"] == (tmp_path / "net.pte").stat().st_size
    assert {"cycles", "sram_bytes", "planned_bytes"} < set(kept["figures"])

    same = gate.check(f"--junit={gate.xml}")
    assert f"{gate.baseline}: none of 8 figures worse\n" in same.stdout
    assert ElementTree.parse(gate.xml).getroot().attrib["failures"] == "0"

    gate.save(SORT)
    worse = gate.check(f"--junit={gate.xml}", status=1)
    line = error(worse)
    assert "delegates 1 -> 2 (+1), since aten::sort in between, refused: " in line
    assert "refused 0 -> 1 (+1), since aten::sort in between" in line
    assert line.endswith("--update accepts it")
    assert "worse           refused 0 -> 1" in worse.stdout
    root = ElementTree.parse(gate.xml).getroot()
    failures = {case.get("name"): case.find("failure") for case in root.iter("testcase")}
    assert len(failures) == int(root.get("tests")) == 8
    assert "aten::sort in between" in failures["refused"].get("message")
    assert {case.get("classname") for case in root.iter("testcase")} == {"model.ethos-u55-128"}

    gate.check("--update")
    gate.check()
    gate.save(torch.nn.ReLU())
    assert "changed         refused 1 -> 0 (-1)\n" in gate.check().stdout


def test_a_noisier_net_is_named_by_where_it_gets_noisy(gate):
    program = torch.export.load(gate.model)
    program.state_dict["first.weight"].data[0] *= 100
    torch.export.save(program, gate.model)
    gate.check("--update", "--accuracy", target="tosa")
    line = error(gate.check("--per-tensor", target="tosa", status=1))  # measured without being asked
    noisier = r": SQNR [\d.]+ -> [\d.]+ dB \(-[\d.]+\), since Conv2d first \(aten::convolution\), [\d.]+ -> "
    assert re.search(noisier, line)
    edited = gate.written()
    edited["allowed"]["sqnr_db"] = 60
    gate.baseline.write_text(json.dumps(edited))
    gate.check("--per-tensor", target="tosa")
    gate.check("--update", target="tosa")
    kept = gate.written()
    assert "sqnr_db" in kept["figures"], "what is measured goes on being measured"
    assert kept["allowed"]["sqnr_db"] == 60, "what is allowed is the team's"


def test_cycles_by_another_vela_are_said_to_be_and_are_no_failure(gate):
    gate.check("--update")
    kept = gate.written()
    here, cycles = kept["versions"]["ethos-u-vela"], kept["figures"]["cycles"]
    kept["versions"]["ethos-u-vela"] = "5.0.0"
    kept["figures"]["cycles"] = 10
    gate.baseline.write_text(json.dumps(kept))
    result = gate.check(f"--junit={gate.xml}")
    assert f"{gate.baseline}: none of 8 figures worse, 1 not compared\n" in result.stdout
    says = f"cycles 10 -> {cycles:,}: another estimator, Vela 5.0.0 -> {here}"
    assert f"not compared    {says}; --update writes a baseline of the new one\n" in result.stdout
    assert says in gate.xml.read_text().replace("&gt;", ">")
    gate.check("--update")
    assert gate.written()["figures"]["cycles"] == cycles


def test_the_json_document_has_it_and_nothing_else_is_in_it(gate):
    gate.check("--update", target="tosa")
    found = json.loads(gate.check("--json", target="tosa").stdout)
    check_document(found, "cli/check")
    figures = {"delegated", "refused", "demoted", "delegates", "planned memory", "flash"}
    assert {each["name"] for each in found["gate"]} == figures
    assert "gate" not in json.loads(gate.alone("--json", target="tosa").stdout)


def test_limits_are_in_the_xml_too(gate):
    result = gate.alone("--max-flash=10", "--fail-under=1", f"--junit={gate.xml}", target="tosa", status=1)
    assert "more than --max-flash 10" in error(result)
    cases = {
        case.get("name"): case.find("failure") is not None for case in ElementTree.parse(gate.xml).iter("testcase")
    }
    assert cases == {"fail-under": False, "max-flash": True, "demotions": False}


def test_a_baseline_of_another_target_or_schema(gate):
    gate.check("--update", target="tosa")
    refused(gate.check(status=2), "the baseline is of target tosa, not ethos-u55-128")
    gate.baseline.write_text(gate.baseline.read_text().replace('"schema_version": 1', '"schema_version": 7'))
    refused(gate.check(target="tosa", status=2), "is of schema 7, and this safe-arm reads 1; --update")
    gate.check("--update", target="tosa")
    assert gate.written()["schema_version"] == 1


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (None, [], "does not exist; --update writes it"),
        ("{", [], "cannot be read (Expecting"),
        ("[]", [], "is no baseline of safe-arm check"),
        ('{"schema_version": 1, "nodes": []}', [], "is no baseline of safe-arm check"),
        ('{"kind": "safe_arm baseline", "schema_version": 1}', [], "cannot be read (KeyError('figures'))"),
        ('{"schema_version": 1}', ["--update"], "is no baseline of safe-arm check"),
    ],
)
def test_what_is_no_baseline_is_refused_and_not_written_over(gate, content, options, says):
    if content is not None:
        gate.baseline.write_text(content)
    refused(gate.check(*options, status=2), says)
    assert content is None or gate.baseline.read_text() == content


def test_update_needs_a_baseline(gate):
    refused(gate.alone("--update", status=2), "--update writes the baseline of --against FILE.json")
