"""--footprint, --operators and the limits through the command line."""

import json
import re
from functools import partial

import pytest
import yaml

#: What fits, and what is one too small.
ENOUGH = {"sram": "1M", "flash": "1M", "cycles": "1000000"}


def test_export_says_what_the_program_takes_if_it_is_asked(files, tmp_path):
    report, operators = tmp_path / "report.json", tmp_path / "operators.yaml"
    options = ("--footprint", f"--operators={operators}", f"--report={report}", "--no-verify")
    result = files.run(*options, target="ethos-u55-128")
    assert result.exit_code == 0, (result.output, result.exception)
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


def test_nothing_is_said_unless_it_is_asked(files, tmp_path):
    report = tmp_path / "report.json"
    result = files.run(f"--report={report}", "--no-verify", target="ethos-u55-128")
    assert result.exit_code == 0
    assert "planned" not in result.stdout
    assert json.loads(report.read_text())["footprint"] is None


def test_the_footprint_changes_no_byte_of_the_pte(files):
    options = {"target": "ethos-u55-128"}
    assert files.run("--no-verify", **options).exit_code == 0
    plain = files.output.read_bytes()
    assert files.run("--no-verify", "--footprint", **options).exit_code == 0
    assert files.output.read_bytes() == plain


def test_what_fits_is_status_0_and_what_does_not_is_status_1_and_by_how_much(files):
    check = partial(files.check, "--no-verify", target="ethos-u55-128")
    kept = [f"--max-{name}={value}" for name, value in ENOUGH.items()]
    assert check(*kept).exit_code == 0
    result = check("--max-sram=1K", "--max-flash=1K", "--max-cycles=10")
    assert result.exit_code == 1
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("Error: "))
    assert re.fullmatch(
        r"Error: "
        r"([\d,]+) bytes of SRAM \([\d,]+ planned by ExecuTorch, [\d,]+ laid out by Vela for tag\d\), [\d,]+ more than "
        r"--max-sram 1,024; ([\d,]+) bytes of flash, [\d,]+ more than --max-flash 1,024; "
        r"([\d,]+) cycles, [\d,]+ more than --max-cycles 10",
        line,
    ), line


def test_an_export_that_does_not_fit_is_written_all_the_same(files):
    result = files.run("--max-flash=100", "--no-verify")
    assert result.exit_code == 1
    assert files.output.stat().st_size > 100
    assert "more than --max-flash 100" in result.stderr


@pytest.mark.parametrize("option", ["--max-sram=1K", "--max-cycles=5"])
def test_what_vela_does_not_compile_for_has_no_such_limit(files, option):
    files.refuses(files.run(option, target="vgf"), f"{option.partition('=')[0]}: for an Ethos-U only")


def test_an_operator_list_is_no_input(files):
    files.refuses(files.run(f"--operators={files.data}"), "is also an input; give another --operators")


def test_an_amount_that_is_none(files):
    files.refuses(files.run("--max-flash=big"), "--max-flash 'big' is no amount of memory")
