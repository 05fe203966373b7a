"""``safe-arm check``: the verdict of an export, in its exit status too, and no file."""

import json
import re
from functools import partial

import faults
import numpy as np
import planting
import pytest
import torch
from command_line import refused

from safe_arm.cli import pipeline

DETAILS = (
    r"\S+net\.pt2: {target}, TOSA-1\.0\+INT\S*, --non-fuseable reject\n"
    r" +reject +propagate *\n"
    r"delegates +1 +1 *\n"
    r"operators +2 of 4 +4 of 4 *\n"
    r"MACs +18\.2 % +100\.0 % *\n"
    r"refused +2 +0 *\n"
    r"demoted +0 +0 *\n"
    r"verified +1 of 1 +1 of 1 *\n"
    r"{cycles}"
    r"(float net       .*\n)?"
    r"tag\d+            2 operators, 2,048 MACs: aten::cat, aten::convolution\n"
    r"                verified: exact on 6 sets of inputs \(\d+\.\d s\)\n"
    r"                border: [\d,]+ bytes in, [\d,]+ out; .*\n"
    r"  refused: non-fuseable island: relu is not implied by its output qparams.* \[S1\]\n"
    r"  costs: 81\.8 % of the MACs \([\d,]+\)\n"
    r"  to do: export with --non-fuseable propagate .*\n"
    r"    aten_convolution_default  Conv2d first \(aten::convolution\)  conftest\.py:\d+  return self\.last\(.*\n"
    r"    aten_relu_default         aten::relu +conftest\.py:\d+  return self\.last\(.*\n"
    r"recommended     export with --non-fuseable propagate: verified, 100 % of the MACs instead of 18\.2 %, "
    r"1 delegate{better}\n"
)


@pytest.fixture
def check(files, monkeypatch):
    """Run ``check`` in a directory that has to stay empty, and see that it does."""
    monkeypatch.chdir(files.output.parent)

    def run(*arguments, **replaced):
        result = files.check(*arguments, **replaced)
        assert not list(files.output.parent.iterdir())
        return result

    return run


@pytest.mark.parametrize("target", ["tosa", "vgf", "ethos-u55-128"])
def test_it_says_of_every_delegate_and_refusal_what_and_why(check, target):
    result = check(target=target)
    assert result.exit_code == 0, result.stderr
    cycles = r"Vela cycles +[\d,]+ +[\d,]+ *\n" if target.startswith("ethos-u") else ""
    better = r", [\d,]+ cycles.*" if cycles else ""
    assert re.fullmatch(DETAILS.format(target=target, cycles=cycles, better=better), result.stdout), result.stdout
    steps = result.stderr.splitlines()
    assert [step.split()[0] for step in steps] == ["load", "calibrate", "lower", "lower"], result.stderr


def test_it_agrees_with_export(files, check):
    exported = files.run("--non-fuseable=propagate").stdout.splitlines()
    files.output.unlink()
    checked = check("--non-fuseable=propagate").stdout.splitlines()
    assert "operators       4 of 4 delegated" in exported
    assert re.fullmatch(r"operators +2 of 4 +4 of 4 *", checked[3])


def test_best_stands_beside_both(check):
    result = check("--non-fuseable=best")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[1].split() == ["reject", "propagate", "best"]
    assert re.fullmatch(r"operators +2 of 4 +4 of 4 +4 of 4 *", lines[3])
    assert "propagated      1 non-fuseable island: aten::relu\n" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("recommended     as it is: verified, 100 %")


def test_best_needs_the_verification(check):
    says = "--non-fuseable best propagates what is verified, and --no-verify leaves the verification out"
    refused(check("--non-fuseable=best", "--no-verify"), says)


def test_what_has_no_islands_is_lowered_once_for_both_policies(check, save, tmp_path):
    save(torch.nn.Conv2d(4, 4, 1), (torch.rand(1, 4, 8, 8),), tmp_path / "plain.pt2")
    np.savez(tmp_path / "plain.npz", np.random.default_rng(0).random((2, 1, 4, 8, 8), "float32"))
    result = check(model=tmp_path / "plain.pt2", calibrate=tmp_path / "plain.npz")
    assert result.exit_code == 0, result.stderr
    assert re.search(r"operators +1 of 1 +1 of 1", result.stdout)
    assert [step.split()[0] for step in result.stderr.splitlines()] == ["load", "calibrate", "lower"]


def test_data_that_teaches_nothing_is_warned_about(check, save, tmp_path):
    save(torch.nn.Conv2d(4, 4, 1), (torch.rand(1, 4, 8, 8),), tmp_path / "plain.pt2")
    np.savez(tmp_path / "zeros.npz", np.zeros((2, 1, 4, 8, 8), "float32"))
    result = check(model=tmp_path / "plain.pt2", calibrate=tmp_path / "zeros.npz")
    assert result.exit_code == 0, result.stderr
    assert "Warning: input 'input' is 0 everywhere in the calibration data" in result.stderr


@pytest.mark.parametrize(("least", "status"), [("18", 0), ("18.5", 1)])
def test_too_little_delegated_is_status_1(check, least, status):
    result = check(f"--fail-under={least}")
    assert result.exit_code == status, result.stderr
    assert ("Error: 18.2 % is delegated, less than --fail-under 18.5" in result.stderr) == bool(status)


def test_the_report_is_written_and_is_that_of_the_policy_asked_for(check, tmp_path):
    report = tmp_path / "report.json"
    assert check("--non-fuseable=propagate", f"--report={report}").exit_code == 0
    record = json.loads(report.read_text())
    assert record["subject"]["non_fuseable"] == "propagate"
    assert record["totals"]["operators_delegated"] == record["totals"]["operators"] == 4


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("report.xml", "a name that ends in .html"),
        ("missing/report.json", "does not exist; create it or give another --report"),
        (".", "is a directory"),
    ],
)
def test_a_report_that_cannot_be_written_is_said_before_the_work(check, tmp_path, name, says):
    refused(check(f"--report={tmp_path / name}"), says)


def test_two_reports_have_two_names(check, tmp_path):
    refused(check(*[f"--report={tmp_path / 'report.json'}"] * 2), "is given twice")


def test_a_demotion_is_status_1_and_says_why(check):
    with faults.visitor_raising("tosa.CONCAT.default"):
        result = check("--non-fuseable=propagate")
    assert result.exit_code == 1, result.stderr
    assert re.search(r"  demoted: \S+ fails on it: InjectedError: the injected fault", result.stdout)
    assert re.search(r"  to do: .*--repro-dir DIR.*\n    aten_cat", result.stdout)
    assert "Warning: demoted from the accelerator to the CPU: aten::cat (conftest.py" in result.stderr
    assert "Traceback" not in result.stderr


def with_options(monkeypatch, **options):
    """Give the partitioner options the command line has not got."""
    monkeypatch.setattr(pipeline, "SafeArmPartitioner", partial(pipeline.SafeArmPartitioner, **options))


def test_a_failed_proof_is_status_1_and_the_measured_difference(check):
    swapped = planting.arg(0, lambda tensors: list(tensors)[::-1], "aten::cat")
    with planting.planted("ExirToTosaPass", swapped, before=True):
        result = check("--non-fuseable=propagate")
        unseen = check("--non-fuseable=propagate", "--no-verify")
    assert result.exit_code == 1, result.stderr
    measured = (
        r"  demoted: differs from the quantised graph by up to \d+ codes? in .*\n  costs: no MACs.*\n.*\n    aten_cat"
    )
    assert re.search(measured, result.stdout)
    assert "\nrecommended     as it is: verified, 81.8 % of the MACs, " in result.stdout
    assert unseen.exit_code == 0, unseen.stderr


def test_without_verification_it_says_so(check):
    result = check("--no-verify")
    assert result.exit_code == 0, result.stderr
    assert "\n                not verified: left out by --no-verify\n" in result.stdout


def test_a_delegate_beyond_the_budget_gives_its_reason_and_is_no_failure(check, monkeypatch):
    with_options(monkeypatch, verify_budget=10)
    result = check()
    assert result.exit_code == 0, result.stderr
    assert re.search(r"\n +not verified, 2048 MACs: more than verify_budget=10; .*\n", result.stdout)


def test_a_float_profile_needs_no_calibration(check):
    result = check("--profile=TOSA-1.0+FP", calibrate=None)
    assert result.exit_code == 0, result.stderr
    assert re.search(r"operators +4 of 4 +4 of 4", result.stdout)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"calibrate": None}, "TOSA-1.0+INT+FP needs a quantised model: give --calibrate"),
        ({"output": "net.pte"}, "No such option '--output'"),
        ({"strict": 1}, "No such option '--strict'"),
    ],
    ids=["no-data", "output", "strict"],
)
def test_wrong_use_is_one_line_and_status_2(check, options, says):
    refused(check(**options), says)


def test_a_lowering_that_dies_is_status_1_and_one_line(check, monkeypatch):
    def broken(*_, **__):
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(pipeline, "to_edge_transform_and_lower", broken)
    result = check()
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(
        "Error: cannot lower for tosa, --non-fuseable reject: IndexError: tuple index out of range"
    )
    assert "Traceback" not in result.stderr
