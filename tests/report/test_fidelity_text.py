"""What the report says of results: beside the float net, beside the quantised graph, and on what that was tried."""

import pytest

from safe_arm.core.float_comparison import FloatComparison, OutputFidelity
from safe_arm.core.record import EARLIER, Report, Verification
from safe_arm.core.unit_accuracy import EXACT_DB
from safe_arm.report.fidelity_text import apart, fidelity_lines, float_net_lines, outcome, sets, verified_line

POOLS = {"apart_worst": 7.0, "apart_mean": 0.65, "ties": ("avg_pool2d", "upsample_bilinear2d")}
POOLS_SAID = "operator by operator; ties of avg_pool2d, upsample_bilinear2d add up to 7 codes at output 0, mean 0.65"


def proven(tag="tag0", worst=0.0, note="", **apart):
    return Verification(tag, True, "", 10, worst, 6, 0.25, note, **apart)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (proven(), "exact"),
        (proven(apart_unit="relative"), "within the rounding of floats"),
        (proven(**POOLS), POOLS_SAID),
        (proven(apart_worst=1.0, apart_mean=0.004, ties=("avg_pool2d",), apart_output=2),
         "operator by operator; ties of avg_pool2d add up to 1 code at output 2, mean 0.004"),
        (proven(apart_worst=1.0, apart_mean=0.5),
         "operator by operator; roundings add up to 1 code at output 0, mean 0.5"),
        (proven(worst=1.0, apart_worst=3.0, apart_mean=0.5, ties=("add",), tolerated=("exp", "mul")),
         "operator by operator, each at most 1 code off; ties of add and tolerances of exp, mul add up to 3 codes at "
         "output 0, mean 0.5"),
        (proven(apart_worst=0.0123, apart_mean=1e-5, apart_unit="relative"),
         "operator by operator; roundings add up to 0.012 of the largest value at output 0, mean 1e-05"),
        (proven(apart_worst=12.0, apart_mean=0.1, apart_unit="integers", ties=("avg_pool2d",)),
         "operator by operator; ties of avg_pool2d add up to a difference of 12 at output 0, mean 0.1"),
    ],
)  # fmt: skip
def test_how_far_a_delegate_is_from_the_quantised_graph(record, says):
    assert apart(record) == says


def test_of_several_delegates_the_one_that_differs_most_is_named():
    two = proven("tag1", **POOLS), proven("tag2", apart_worst=2.0, apart_mean=0.9)
    assert verified_line([proven(), *two]) == (
        "3 of 3 delegates against the quantised graph: 1 exact, 2 " + POOLS_SAID.replace("output 0", "output 0 of tag1")
    )
    failed = Verification("tag3", False, "not verified: no memory", 0, 0.0, 0, 0.0)
    assert verified_line([proven(), failed]) == "1 of 2 delegates against the quantised graph: exact"
    assert verified_line([failed]) == "0 of 1 delegate"
    floats = proven("tag4", apart_unit="relative")
    assert verified_line([proven(), floats]).endswith(" the quantised graph: within the rounding of floats")
    assert verified_line([floats, failed]).startswith("1 of 2 delegates against the exported program: within")


def test_an_outcome_names_the_sets_it_was_tried_on():
    assert outcome(proven()) == "verified: exact on 6 sets of inputs"
    assert outcome(proven(note=EARLIER, **POOLS)) == f"verified, in an earlier run: {POOLS_SAID} on 6 sets of inputs"
    assert outcome(Verification("tag0", False, "differs", 0, 0.0, 1, 0.1)) == "differs"


def test_the_lines_go_from_the_float_net_to_the_quantised_graph_to_what_was_tried():
    compared = FloatComparison((OutputFidelity("output 0", 38.24, 35.07, 4),), 32)
    report = Report((), 0, 0, verifications=(proven(**POOLS),), float_comparisons=(compared,))
    assert list(fidelity_lines(report)) == [
        ("float net", "38.2 dB at output 0, worst sample 35.1 dB (sample 4), on 32 calibration samples"),
        ("verified", f"1 of 1 delegate against the quantised graph: {POOLS_SAID}"),
        ("tried", "6 sets of inputs in the reference model (0.2 s)"),
    ]
    assert list(fidelity_lines(Report((), 0, 0))) == []


def test_a_proof_of_an_earlier_run_is_counted_whatever_its_sizes():
    kept = proven("tag1", note="verified at 2x3, in an earlier run")
    lines = dict(fidelity_lines(Report((), 0, 0, verifications=(proven(), kept, proven("tag2", note=EARLIER)))))
    assert lines["tried"] == "6 sets of inputs each in the reference model (0.8 s), 2 delegates in an earlier run"


@pytest.mark.parametrize(
    ("tried", "said"),
    [([6], "6 sets of inputs"), ([1], "1 set of inputs"), ([6, 6], "6 sets of inputs each"),
     ([6, 2], "2 or more sets of inputs each"), ([1, 1], "1 set of inputs each")],
)  # fmt: skip
def test_sets_of_inputs_are_counted_as_they_are(tried, said):
    assert sets(tried) == said


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (OutputFidelity("logits", 38.24, 35.07, 4), "38.2 dB at logits, worst sample 35.1 dB (sample 4)"),
        (OutputFidelity("logits", EXACT_DB, EXACT_DB), "exact at logits"),
        (OutputFidelity("logits", 41.9, -EXACT_DB, 3), "41.9 dB at logits, worst sample no signal (sample 3)"),
        (OutputFidelity("best", agreement=0.998, worst_agreement=0.98, worst_sample=2),
         "labels agree in 99.8 % at best, worst sample 98 % (sample 2)"),
        (OutputFidelity("best", agreement=0.99999, worst_agreement=0.0),
         "labels agree in 99.9 % at best, worst sample 0 % (sample 0)"),
        (OutputFidelity("best", agreement=1.0, worst_agreement=1.0), "exact at best"),
    ],
)  # fmt: skip
def test_an_output_beside_the_float_net(output, says):
    assert float_net_lines(FloatComparison((output,), 9)) == [f"{says}, on 9 calibration samples"]


def test_of_one_sample_the_worst_is_not_said_twice():
    (line,) = float_net_lines(FloatComparison((OutputFidelity("output 0", 38.2, 38.2),), 1))
    assert line == "38.2 dB at output 0, on 1 calibration sample"


def test_of_more_samples_than_are_compared_it_says_so():
    output = OutputFidelity("output 0", 38.2)
    (line,) = float_net_lines(FloatComparison((output,), 32, shown=48))
    assert line == "38.2 dB at output 0, on the first 32 of 48 calibration samples"


def test_what_was_not_compared_is_said_with_its_reason_and_nothing_else():
    assert float_net_lines(FloatComparison(note="the net has a loop")) == [
        "not compared with the float net: the net has a loop"
    ]
    half = FloatComparison((OutputFidelity("a", 30.0, 30.0),), 1, note="output b has no counterpart")
    assert float_net_lines(half)[-1] == "output b has no counterpart"
    assert float_net_lines(FloatComparison()) == []


def test_of_many_outputs_the_worst_are_named():
    floats = tuple(OutputFidelity(f"f{n}", 50.0 - n, 40.0 - n, 0) for n in range(8))
    labels = OutputFidelity("labels", agreement=0.5, worst_agreement=0.25)
    lines = float_net_lines(FloatComparison((*floats, labels), 4))
    assert [line.split(" at ")[-1].split(",")[0] for line in lines[:5]] == ["f7", "f6", "f5", "f4", "labels"]
    assert lines[5] == "4 more outputs, none worse, on 4 calibration samples"


def test_methods_have_their_names():
    compared = tuple(FloatComparison((OutputFidelity("y", 30.0, 30.0),), 1, method=name) for name in ("enc", "dec"))
    report = Report((), 0, 0, methods=("enc", "dec"), float_comparisons=compared)
    assert [line.split(":")[0] for _, line in fidelity_lines(report)] == ["enc", "dec"]
