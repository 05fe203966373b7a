"""--footprint, --operators and the limits through the command line."""

import json
import re
from functools import partial

import pytest
import yaml


def test_export_says_what_the_program_takes_if_it_is_asked(files, tmp_path):
    report, operators = tmp_path / "report.json", tmp_path / "operators.yaml"
    options = ("--footprint", f"--operators={operators}", f"--report={report}", "--no-verify")
    result = files.run(*options, target="ethos-u55-128")
    size = files.output.stat().st_size
    assert re.search(rf"^flash +{size:,} bytes of .pte$", result.stdout, re.M), result.stdout
    assert re.search(r"^planned +[\d,]+ bytes$", result.stdout, re.M), result.stdout
    assert re.search(r"^Vela +tag\d: [\d,]+ cycles, [\d,]+ bytes of SRAM .* on the NPU$", result.stdout, re.M)
    record = json.loads(report.read_text())["footprint"]
    assert record["pte_bytes"] == size
    listed = yaml.safe_load(operators.read_text())
    assert list(listed["operators"]) == [kernel["name"] for kernel in record["kernels"]] != []
    for kernel in record["kernels"]:
        assert kernel["name"] in result.stdout


@pytest.mark.parametrize("option", ["--footprint", "--accuracy"])
def test_what_is_only_measured_changes_no_byte_of_the_pte(files, option):
    files.run("--no-verify", target="ethos-u55-128")
    plain = files.output.read_bytes()
    files.run("--no-verify", option, target="ethos-u55-128")
    assert files.output.read_bytes() == plain


def test_what_fits_is_status_0_and_what_does_not_is_status_1_and_by_how_much(files):
    check = partial(files.check, "--no-verify", target="ethos-u55-128")
    check("--max-sram=1M", "--max-flash=1M", "--max-cycles=1000000")
    result = check("--max-sram=1K", "--max-flash=1K", "--max-cycles=10", status=1)
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("Error: "))
    assert re.fullmatch(
        r"Error: [\d,]+ bytes of SRAM \([\d,]+ planned by ExecuTorch, [\d,]+ laid out by Vela for tag\d\), [\d,]+ more "
        r"than --max-sram 1,024; [\d,]+ bytes of flash, [\d,]+ more than --max-flash 1,024; "
        r"[\d,]+ cycles, [\d,]+ more than --max-cycles 10",
        line,
    ), line
