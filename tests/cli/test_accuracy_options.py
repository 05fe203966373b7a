"""``--accuracy`` and ``--min-sqnr``: what is printed and recorded, the exit status, and what is refused."""

import json
import re

import pytest


def test_check_prints_the_outputs_and_the_worst_units(files):
    result = files.check("--accuracy")
    lines = result.stdout.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("accuracy"))
    pooled = r"accuracy +\d\d\.\d dB at the output, worst sample \d\d\.\d dB \(sample \d\), on 3 samples \(.* s\)"
    assert re.fullmatch(pooled, lines[start])
    assert re.fullmatch(r" +the units' own errors explain the noise: they add up to \d\.\d\d of it", lines[start + 1])
    assert re.match(r"worst units     .+ \[\w+\]: \d+ % of the noise, \d\d\.\d dB as the net runs, ", lines[start + 2])
    assert sum("dB as the net runs" in line for line in lines) == 5
    assert "compare with the float model" in result.stderr


def test_the_record_has_every_unit_and_each_operator_the_name_of_its_own(files, tmp_path):
    result = files.check("--accuracy", "--json", f"--report={tmp_path}/net.json")
    reports = json.loads(result.stdout)["reports"]
    assert reports["reject"]["accuracy"] == reports["propagate"]["accuracy"]
    written = json.loads((tmp_path / "net.json").read_text())
    names = [unit["name"] for unit in written["accuracy"]["units"]]
    computing = {node["unit"] for node in written["nodes"] if not node["op"].startswith("quantized")}
    assert computing <= set(names)
    assert set(names) - computing == {"x", "y"}


@pytest.mark.parametrize(("least", "status"), [(10, 0), (90, 1)])
def test_the_gate_of_check(files, least, status):
    result = files.check(f"--min-sqnr={least}", status=status)
    assert "accuracy " in result.stdout
    error = (
        r"Error: an output has \d\d\.\d dB of signal to quantisation noise on sample \d, less than --min-sqnr 90; "
        r"\w+ costs the outputs most"
    )
    assert bool(re.match(error, result.stderr.splitlines()[-1])) == bool(status)
