"""What each reason costs, and what to do about it."""

from dataclasses import replace

import pytest

from benchmarks.reports import large_report
from safe_arm.core.float_comparison import FloatComparison
from safe_arm.core.plain_reasons import TAKEN_APART
from safe_arm.core.record import NodeVerdict, Reason, Report, Subject
from safe_arm.report.causes import causes

STOCK = Reason("Not included in BaseTOSASupportList or a registered tosa_support_check", "stock")
STRIDES = (
    "an Ethos-U55 takes strides of more than 3 without padding and dilation only: this has stride 4, padding {} and "
    "dilation {}"
)
QUANTIZE = "quantized_decomposed::quantize_per_tensor"


def conv(name, delegate, *inputs, macs=100):
    return NodeVerdict(name, "aten::convolution", delegate, macs=macs, inputs=inputs)


def fallback(name, *inputs, macs=0, reason=STOCK, op="aten::atan2", **more):
    return NodeVerdict(name, op, None, (reason,), macs=macs, inputs=inputs, **more)


def of(*verdicts, **more):
    return causes(Report(tuple(verdicts), 0, 0, **more))


def test_a_share_of_the_macs():
    (cause,) = of(conv("a", "t0", macs=75), fallback("b", "a", macs=25))
    assert cause.cost == "25.0 % of the MACs (25)"
    assert (cause.macs, cause.first.verdict, cause.nodes) == (25, "refused", (1,))


def test_what_stands_between_delegates_cuts_them():
    border = fallback("q", "b", op=QUANTIZE, reason=Reason("border", "boundary"))
    between = conv("a", "t0"), fallback("b", "a"), border, conv("c", "t1", "q")
    assert of(*between)[0].cost == "no MACs, cuts 1 delegate into 2"
    again = *between, fallback("d", "c"), conv("e", "t2", "d")
    assert of(*again)[0].cost == "no MACs, cuts 1 delegate into 3"


@pytest.mark.parametrize(
    "verdicts",
    [
        (conv("a", "t0"), fallback("b", "a")),
        (fallback("b"), conv("a", "t0", "b"), conv("c", "t1", "b")),
        (conv("a", "t0"), conv("c", "t1"), fallback("b", "a", "c")),
    ],
    ids=["last", "first", "a join at the end"],
)
def test_what_stands_at_an_end_cuts_nothing(verdicts):
    assert of(*verdicts)[0].cost == "no MACs"


def test_the_dearest_reason_comes_first_then_the_most_frequent():
    other = Reason("another", "stock")
    few, many = fallback("a", macs=5), [fallback(f"n{i}", reason=other) for i in range(3)]
    one = fallback("z", reason=Reason("a third", "stock"))
    assert [cause.first.reason for cause in of(one, *many, few)] == [STOCK.text, "another", "a third"]


@pytest.mark.parametrize(
    ("reason", "more", "advice"),
    [
        (Reason("x", "check", "S1"), {}, "export with --non-fuseable best"),
        (Reason("x", "check", "S5"), {}, "rewrite it, or leave it to the CPU"),
        (STOCK, {}, "write it with other operators"),
        (STOCK, {}, "or leave it to the CPU (XnnpackPartitioner() after SafeArmPartitioner makes that faster)"),
        (Reason(f"aten::silu {TAKEN_APART}", "stock"), {}, "lower with to_edge_transform_and_lower"),
        (STOCK, {"op": "aten::addmm"}, "write it with other operators"),
        (STOCK, {"op": "aten::clone"}, "lower without _skip_dim_order=True"),
        (STOCK, {"op": "aten::bmm"}, "write it with other operators"),
        (Reason("Had torch.float32 input x", "stock"), {}, "quantise it"),
        (Reason("Max supported rank is 5.", "stock"), {}, "operators and sizes that the target supports"),
        (Reason("Pass fails on it: boom", "preflight"), {}, "--repro-dir DIR"),
        (Reason("Pass fails on it: boom", "preflight"), {"repro": "r/a.py"}, "python r/a.py reproduces it"),
        (Reason("differs from the quantised graph", "verify"), {}, "--repro-dir DIR"),
        (Reason("differs from the quantised graph by up to 1 code in 3 of 9 values", "verify"), {}, "--tolerance 1"),
        (Reason("differs from the quantised graph by up to 9 codes in 3 of 9 values", "verify"), {}, "runs on the CPU"),
        (Reason("Can't find the custom shared library: x", "preflight"), {}, "to delegate it unverified, --no-verify"),
        (Reason("x", "boundary"), {}, "operators next to it"),
        (Reason("y", "stock"), {"left_float": "--keep-float conv1"}, "leave out --keep-float conv1"),
        (Reason("y", "stock"), {"left_float": "observe: complex64"}, "so that it can be quantised: complex64"),
    ],
)
def test_every_reason_says_what_to_do(reason, more, advice):
    assert advice in of(fallback("a", reason=reason, **more))[0].advice


def test_under_best_only_propagating_unverified_is_left():
    text = "the activation cannot be fused, and the delegate is not verified, 9216 MACs"
    (cause,) = of(fallback("a", reason=Reason(text, "check", "S1")), subject=Subject(non_fuseable="best"))
    assert cause.advice == 'to delegate it unverified, --non-fuseable propagate (non_fuseable="propagate")'


def test_who_propagates_already_is_not_told_to():
    (cause,) = of(fallback("a", reason=Reason("decomposed", "check", "S1")), subject=Subject(non_fuseable="propagate"))
    assert cause.advice.startswith("write it as nn.Linear")


CAST = "Output dtype torch.{} is not supported in a.b for input dtype torch.{}. Supported output types: torch.float32"


@pytest.mark.parametrize(
    ("text", "profile", "advice"),
    [
        (CAST.format("int64", "int32"), "TOSA-1.0+INT+FP", "use int32 or smaller integers there"),
        (CAST.format("float32", "int64"), "TOSA-1.0+INT", "use int32 or smaller integers there"),
        (CAST.format("complex64", "float32"), "TOSA-1.0+INT+FP", "rewrite it with operators and sizes"),
        (CAST.format("float32", "uint8"), "TOSA-1.0+INT", "cast pixels once"),
        (CAST.format("uint8", "float32"), "TOSA-1.0+INT+FP", "rewrite it with operators and sizes"),
        ("Input dtype torch.uint8 is not supported in a.b. Supported: c", "TOSA-1.0+INT", "cast pixels once"),
        ("unsupported values dtype torch.uint8; expected one of {torch.float32}.", "TOSA-1.0+INT", "cast pixels once"),
        ("Partition contained internal uint8 tensors. Uint8 is IO.", "TOSA-1.0+INT+FP", "cast pixels once"),
        (CAST.format("float32", "int8"), "TOSA-1.0+INT", "quantise it, or use a profile with floats"),
        (CAST.format("float32", "int8"), "TOSA-1.0+INT+FP", "rewrite it with operators and sizes"),
        ("Node was not marked as quantized in the Arm backend.", "TOSA-1.0+INT", "quantise it"),
        ("Had torch.float64 input x that is not supported by it.", "TOSA-1.0+INT", "compute it in float32"),
        ("Had torch.float64 input x that is not supported by it.", "TOSA-1.0+INT+FP", "compute it in float32"),
        ("Op is not supported on U55.", "TOSA-1.0+INT+u55", "write it with other operators"),
        (STRIDES.format(2, 1), "TOSA-1.0+INT+u55", "pad before it"),
        (STRIDES.format(0, 2), "TOSA-1.0+INT+u55", "give it a smaller stride"),
        ("Unsupported stride of (3, 3) for Ethos-U55. You can", "TOSA-1.0+INT+u55", "give it stride 1 or 2"),
    ],
)
def test_the_advice_is_about_what_is_refused_and_not_about_what_is_supported(text, profile, advice):
    subject = Subject("tosa", profile)
    (cause,) = of(fallback("a", reason=Reason(text, "stock")), subject=subject)
    assert cause.advice.startswith(advice)


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("aten::kl_div", "write aten::kl_div with operators that are quantised, such as sub"),
        ("aten::layer_norm", "quantise it, or use a profile with floats"),
    ],
)
def test_a_loss_that_no_quantiser_knows_is_to_be_written_with_operators_that_one_does(written, advice):
    reason = Reason("Node was not marked as quantized in the Arm backend.", "stock")
    (cause,) = of(fallback("a", reason=reason, written=written), subject=Subject("tosa", "TOSA-1.0+INT"))
    assert cause.advice.startswith(advice)
    assert cause.advice.endswith(", or use a profile with floats, such as TOSA-1.0+INT+FP")


def test_what_is_left_float_as_it_is_double_is_to_be_computed_in_float32():
    (cause,) = of(fallback("a", left_float="annotate: conv2d is torch.float64, which cannot be quantised"))
    assert cause.advice == "compute it in float32, as after model.float()"


@pytest.mark.parametrize(
    ("op", "profile", "advice"),
    [
        ("aten::sin", "TOSA-1.0+INT+int16", "no table of 16 bits follows it there (safe-arm issues S55)"),
        ("aten::sin", "TOSA-1.0+INT", "it runs on the CPU instead"),
        ("aten::conv2d", "TOSA-1.0+INT+int16", "it runs on the CPU instead"),
    ],
)
def test_a_function_of_16_bits_that_no_table_follows_is_no_bug(op, profile, advice):
    reason = Reason("differs from the quantised graph by up to 82 codes in 253 of 256 values", "verify")
    (cause,) = of(fallback("a", op=op, reason=reason), subject=Subject("tosa", profile))
    assert cause.advice.startswith(advice)


def test_one_that_a_pass_fails_on_is():
    reason = Reason("Pass fails on it: boom", "preflight")
    (cause,) = of(fallback("a", op="aten::sin", reason=reason), subject=Subject("tosa", "TOSA-1.0+INT+int16"))
    assert cause.advice.startswith("it runs on the CPU instead")


@pytest.mark.parametrize(
    ("profile", "advice"), [("TOSA-1.0+INT+u55", "an Ethos-U55 has none; leave it"), ("TOSA-1.0+INT", "quantise it")]
)
def test_nobody_is_told_to_quantise_what_an_ethos_u55_has_not(profile, advice):
    reason = Reason("TOSA ARGMAX requires PRO-FP for torch.float32 input.", "stock")
    (cause,) = of(fallback("a", op="aten::argmax", reason=reason), subject=Subject("ethos-u55-128", profile))
    assert cause.advice.startswith(advice)


@pytest.mark.parametrize("op", ["aten::native_dropout", "aten::_native_batch_norm_legit_functional"])
def test_a_model_in_training_mode_is_to_be_evaluated(op):
    (cause,) = of(fallback("a", op=op, reason=STOCK))
    assert cause.advice == "call model.eval() before torch.export.export"


def test_operators_with_one_reason_and_advice_of_their_own_are_apart():
    left_float = fallback("a", left_float="transform: RuntimeError: no argmax")
    found = {cause.advice: [verdict.name for verdict in cause.verdicts] for cause in of(left_float, fallback("b"))}
    of_a, of_b = found
    assert (found[of_a], found[of_b]) == (["a"], ["b"])
    assert "no argmax" in of_a
    assert "no argmax" not in of_b


def test_a_float_profile_is_not_proposed_where_there_is_none():
    reason = Reason("Had torch.float32 input x", "stock")
    ethos = Subject("ethos-u55-128", "TOSA-1.0+INT+u55")
    assert "profile" not in of(fallback("a", reason=reason), subject=ethos)[0].advice


@pytest.mark.parametrize(("target", "quantiser"), [("vgf", "SafeVgfQuantizer"), ("tosa", "SafeTOSAQuantizer")])
def test_a_float_net_that_no_quantiser_has_prepared_is_to_be(target, quantiser):
    (cause,) = of(fallback("a", reason=STOCK), subject=Subject(target, "TOSA-1.0+FP"))
    assert cause.advice.startswith(f"prepare and convert the float net with {quantiser}, with no configuration")
    assert "; else write it with other operators, or leave it" in cause.advice


@pytest.mark.parametrize(("profile", "compared"), [("TOSA-1.0+FP", True), ("TOSA-1.0+INT+FP", False)])
def test_one_that_is_prepared_or_not_of_floats_alone_is_not(profile, compared):
    comparisons = (FloatComparison(),) if compared else ()
    (cause,) = of(fallback("a", reason=STOCK), subject=Subject("vgf", profile), float_comparisons=comparisons)
    assert cause.advice.startswith("write it with other operators")


@pytest.mark.parametrize("reason", [STOCK, Reason("Max supported rank is 5.", "stock")])
def test_nobody_is_sent_to_xnnpack_beside_an_ethos_u(reason):
    ethos = Subject("ethos-u85-256", "TOSA-1.0+INT")
    assert "XnnpackPartitioner" in of(fallback("a", reason=reason))[0].advice
    advice = of(fallback("a", reason=reason), subject=ethos)[0].advice
    assert "Xnnpack" not in advice
    assert "leave it to the Cortex-M, whose runtime has to link its kernel" in advice


def test_a_large_report_takes_no_time_to_speak_of():
    report = large_report(5000, every=2)
    reasons = [
        replace(v, reasons=(Reason(f"reason {v.name}", "stock"),)) if not v.delegate else v for v in report.verdicts
    ]
    assert len(causes(replace(report, verdicts=tuple(reasons)))) == len(report.fallbacks)
