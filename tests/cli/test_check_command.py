"""``safe-arm check``: the verdict of an export, in its exit status too, and no file."""

import json
import re
from functools import partial

import faults
import numpy as np
import planting
import pytest
import torch
from schemas import check_document

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
    r"  refused: relu cannot be fused: its lower bound 0 has code .* \[S1\]\n"
    r"  costs: 81\.8 % of the MACs \([\d,]+\)\n"
    r"  to do: export with --non-fuseable best .*\n"
    r"    aten_convolution_default  Conv2d first \(aten::convolution\)  conftest\.py:\d+  return self\.last\(.*\n"
    r"    aten_relu_default         aten::relu +conftest\.py:\d+  return self\.last\(.*\n"
    r"recommended     export with --non-fuseable best: verified, 100 % of the MACs instead of 18\.2 %, "
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
    cycles = r"Vela cycles +[\d,]+ +[\d,]+ *\n" if target.startswith("ethos-u") else ""
    better = r", [\d,]+ cycles.*" if cycles else ""
    named = rf"{target} \(\w+, \w+\)" if cycles else target
    assert re.fullmatch(DETAILS.format(target=named, cycles=cycles, better=better), result.stdout), result.stdout
    steps = result.stderr.splitlines()
    assert [step.split()[0] for step in steps] == ["load", "calibrate", "lower", "lower"], result.stderr


def test_best_stands_beside_both_and_the_report_is_that_of_the_policy_asked_for(check, tmp_path):
    result = check("--non-fuseable=best", f"--report={tmp_path / 'report.json'}")
    record = json.loads((tmp_path / "report.json").read_text())
    assert record["subject"]["non_fuseable"] == "best"
    assert record["totals"]["operators_delegated"] == record["totals"]["operators"] == 4
    lines = result.stdout.splitlines()
    assert lines[1].split() == ["reject", "propagate", "best"]
    assert re.fullmatch(r"operators +2 of 4 +4 of 4 +4 of 4 *", lines[3])
    assert "propagated      1 non-fuseable island: aten::relu\n" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("recommended     as it is: verified, 100 %")


@pytest.fixture
def plain(check, save, tmp_path):
    """Check a net without an island with some data."""

    def run(data):
        save(torch.nn.Conv2d(4, 4, 1), (torch.rand(1, 4, 8, 8),), tmp_path / "plain.pt2")
        np.savez(tmp_path / "plain.npz", data)
        return check(model=tmp_path / "plain.pt2", calibrate=tmp_path / "plain.npz")

    return run


def test_what_has_no_islands_is_lowered_once_for_both_policies(plain):
    result = plain(np.random.default_rng(0).random((2, 1, 4, 8, 8), "float32"))
    assert re.search(r"operators +1 of 1 +1 of 1", result.stdout)
    assert [step.split()[0] for step in result.stderr.splitlines()] == ["load", "calibrate", "lower"]


def test_data_that_teaches_nothing_is_warned_about(plain):
    result = plain(np.zeros((2, 1, 4, 8, 8), "float32"))
    assert "Warning: input 'input' is 0 everywhere in the calibration data" in result.stderr


def test_a_demotion_is_status_1_and_says_why(check):
    with faults.visitor_raising("tosa.CONCAT.default"):
        result = check("--non-fuseable=propagate", status=1)
    assert re.search(r"  demoted: \S+ fails on it: InjectedError: the injected fault", result.stdout)
    assert re.search(r"  to do: .*--repro-dir DIR.*\n    aten_cat", result.stdout)
    assert "Warning: demoted from the accelerator to the CPU: aten::cat (conftest.py" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_failed_proof_is_status_1_and_the_measured_difference(check):
    swapped = planting.arg(0, lambda tensors: list(tensors)[::-1], "aten::cat")
    with planting.planted("ExirToTosaPass", swapped, before=True):
        result = check("--non-fuseable=propagate", status=1)
        unseen = check("--non-fuseable=propagate", "--no-verify")
    measured = (
        r"  demoted: differs from the quantised graph by up to \d+ codes? in .*\n  costs: no MACs.*\n.*\n    aten_cat"
    )
    assert re.search(measured, result.stdout)
    assert "\nrecommended     as it is: verified, 81.8 % of the MACs, " in result.stdout
    assert "\n                not verified: left out by --no-verify\n" in unseen.stdout


def test_a_delegate_beyond_the_budget_gives_its_reason_and_is_no_failure(check, monkeypatch):
    monkeypatch.setattr(pipeline, "SafeArmPartitioner", partial(pipeline.SafeArmPartitioner, verify_budget=10))
    assert re.search(r"\n +not verified, 2048 MACs: more than verify_budget=10; .*\n", check().stdout)


def test_the_document_is_as_the_schemas_say(files):
    result = files.check("--json")
    document = json.loads(result.stdout)
    check_document(document, "cli/check")
    for policy, report in document["reports"].items():
        check_document(report, "report/report")
        assert report["subject"]["non_fuseable"] == policy
    assert document["recommendation"].startswith("export with --non-fuseable best: verified, 100 % of the MACs")
    assert document["comparison"]["reject"] == {
        "delegates": 1, "operators": 4, "operators_delegated": 2, "share_delegated": 2048 / 11264,
        "refused": 2, "demoted": 0, "verified": 1, "vela_cycles": None,
    }  # fmt: skip
    assert document["comparison"]["propagate"]["operators_delegated"] == 4
