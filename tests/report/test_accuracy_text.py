"""What the text says about accuracy: nothing unless asked, the worst units, and whether the sum explains the noise."""

from dataclasses import replace

import pytest
from invented_accuracy import measured

from benchmarks.reports import large_report
from safe_arm.core.unit_accuracy import EXACT_DB, Accuracy, UnitAccuracy
from safe_arm.report.accuracy_text import accuracy_lines, described, explanation, outputs_line, unit_name


def unit(name, noise=None, isolated=40.0, **more):
    return UnitAccuracy(name, "", "aten::conv2d", 30.0, isolated, 0.0, 1.0, output_noise=noise, **more)


def accuracy(*units, outputs=(30.0,), noise=1e-3):
    return Accuracy(units, outputs, 8, 0.5, noise)


def test_the_five_worst_are_named():
    report = large_report(60)
    found, verdicts = measured(report.verdicts)
    lines = list(accuracy_lines(replace(report, accuracy=found, verdicts=verdicts)))
    assert [name for name, _ in lines] == ["accuracy", "", "worst units", "", "", "", ""]
    assert lines[0][1] == "33.0 dB at the output, on 8 samples (1.0 s)"
    assert "% of the noise, 5.0 dB as the net runs, 8.0 dB alone, channel 3 8.0 dB" in lines[2][1]


def test_what_was_not_measured_is_counted():
    report = replace(large_report(30), accuracy=replace(accuracy(unit("a")), unmeasured=3))
    assert "3 units without a counterpart in the float model, not measured" in dict(accuracy_lines(report)).values()


@pytest.mark.parametrize(
    ("noises", "says"),
    [
        ((4e-4, 4e-4), "explain the noise: they add up to 0.80 of it"),
        ((5e-4,), "explain the noise: they add up to 0.50 of it"),
        ((4.9e-4,), "do not explain the noise: they add up to 0.49 of it (they add up, or something saturates"),
        ((2.1e-3,), "do not explain the noise: they add up to 2.1 of it (they partly cancel"),
        ((None, None), "is not known"),
    ],
)
def test_the_sum_of_the_units_against_what_is_measured(noises, says):
    assert says in explanation(accuracy(*(unit(f"u{index}", noise) for index, noise in enumerate(noises))))


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        ((41.34,), "41.3 dB at the output"),
        ((41.0, 20.0), "20.0 dB at the worst of 2 outputs (41.0 dB, 20.0 dB)"),
        ((EXACT_DB,), "exact at the output"),
        ((-EXACT_DB,), "no signal at the output"),
        ((), "no output is float"),
        ((40.0,) * 7, "40.0 dB at the worst of 7 outputs (40.0 dB, 40.0 dB, 40.0 dB, 40.0 dB, 40.0 dB, ...)"),
    ],
)
def test_the_outputs(outputs, says):
    assert outputs_line(accuracy(outputs=outputs)) == says


def test_the_worst_sample_stands_beside_all_of_them():
    found = replace(accuracy(), worst_sample_db=12.34, worst_sample=5)
    assert outputs_line(found) == "30.0 dB at the output, worst sample 12.3 dB (sample 5)"
    assert outputs_line(replace(found, samples=1)) == "30.0 dB at the output"
    exact = replace(accuracy(outputs=(EXACT_DB,)), worst_sample_db=EXACT_DB)
    assert outputs_line(exact) == "exact at the output"


def test_the_worst_is_what_costs_the_outputs_most_and_then_what_is_worst_alone():
    units = unit("a", 1e-4, 10.0), unit("b", 3e-4, 50.0), unit("c", None, 20.0), unit("d", None, 5.0)
    assert [each.name for each in accuracy(*units).worst] == ["b", "a", "d", "c"]


def test_a_unit_says_what_it_costs_and_leaves_out_what_is_nothing():
    worst = unit("a", 3e-4, worst_channel=2, worst_channel_db=-1.25)
    whole = accuracy(worst, unit("b", 1e-4))
    assert described(worst, whole) == (
        "75 % of the noise, 30.0 dB as the net runs, 40.0 dB alone, channel 2 -1.2 dB, 100 % of the range used"
    )
    saturated = replace(unit("c"), saturated=0.25)
    assert described(saturated, whole) == (
        "30.0 dB as the net runs, 40.0 dB alone, 25 % saturated, 100 % of the range used"
    )


def test_a_unit_has_the_name_of_its_largest_operator():
    report = large_report(30)
    conv = next(v for v in report.compute if v.macs)
    others = [replace(v, unit="u") for v in report.compute if v is conv or not v.macs]
    named = replace(report, verdicts=tuple(others))
    assert unit_name(unit("u"), named) == f"{conv.as_written} [u]"
    assert unit_name(replace(unit("gone"), module="head"), named) == "aten::conv2d in head [gone]"
    assert unit_name(replace(unit("x"), op=""), named) == "input x"
