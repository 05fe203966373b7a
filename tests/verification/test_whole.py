"""A whole program against the quantised graph: how far off, and which delegate is the first to go wrong."""

import math
import re
import sys

import planting
import pytest
import torch
from broken_model import break_model
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.exir import to_edge_transform_and_lower
from lowering import EDGE, PROFILES, codes_apart, lower, quantize, tosa
from mutations import MUTATIONS
from small import Built, Lambda, image
from stubborn import quantizer_of
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import safe_arm
from safe_arm import SafeArmPartitioner, SafeArmPassManager, SafeTOSAQuantizer, UsageError
from safe_arm.verification.double import evaluate_in_double
from safe_arm.verification.model_server import NoResultError
from safe_arm.verification.whole import Boundary, Gap, VerificationReport

RELU_DROPPED = next(m for m in MUTATIONS if m.id == "relu-dropped")


def net():
    """A ReLU that saturation does not imply, then an operator that stays on the CPU, then a convolution."""
    return Lambda(lambda m, x: m.conv_b(torch.i0(torch.cat((torch.relu(m.conv(x)), x), 1))[:, :4]))


@pytest.fixture(scope="module")
def lowered():
    graph_module = quantize(net(), image(), tosa(PROFILES[1]))
    partitioner = SafeArmPartitioner(tosa(PROFILES[1]), non_fuseable="propagate", verify=False)
    return graph_module, lower(graph_module, image(), partitioner), partitioner.report


@pytest.fixture(scope="module")
def wrong(lowered):
    with pytest.MonkeyPatch.context() as patch, RELU_DROPPED.planted():
        patch.setattr(SafeArmPassManager, "invariants", ())
        partitioner = SafeArmPartitioner(tosa(PROFILES[1]), non_fuseable="propagate", verify=False)
        return lower(lowered[0], image(), partitioner)


def test_what_is_right_is_exact_at_every_boundary(lowered):
    graph_module, ours, partitioners_report = lowered
    report = safe_arm.verify(ours, [image(), image(1)], reference=graph_module)
    assert report.verified
    assert len(report.boundaries) == 2
    assert sorted(boundary.delegate for boundary in report.boundaries) == sorted(partitioners_report.delegates)
    gaps = [*report.outputs, *(gap for boundary in report.boundaries for gap in boundary.gaps)]
    assert {(gap.worst, gap.mean, gap.sqnr) for gap in gaps} == {(0.0, 0.0, math.inf)}
    tags = [boundary.delegate for boundary in report.boundaries]
    assert str(report).splitlines() == ["output 0: no difference", *(f"{tag}: verified" for tag in tags)]


def test_an_output_has_the_key_under_which_the_net_returns_it():
    spec = tosa(PROFILES[0])
    graph_module = quantize(Lambda(lambda m, x: {"logits": m.conv(x), "aux": (m.conv_b(x),)}), image(), spec)
    ours = lower(graph_module, image(), SafeArmPartitioner(spec, verify=False))
    report = safe_arm.verify(ours, [image()], reference=graph_module)
    assert [gap.name for gap in report.outputs] == ["logits", "aux[0]"]


def test_the_first_delegate_that_goes_wrong_is_named(lowered, wrong):
    report = safe_arm.verify(wrong, [image(), image(1)], reference=lowered[0])
    first, second = report.boundaries
    assert report.first_wrong is first
    assert re.search("aten_relu_default.* differs by up to .* codes", first.reason)
    assert first.gaps[0].worst > 4
    assert re.search(rf"^output 0: \d+ codes at most, .*\n{first.delegate}: WRONG: ", str(report))
    assert first.gaps[0].codes
    assert not second.reason, "it computes rightly what it is given"
    assert second.gaps[0].worst > 0
    assert report.outputs[0].worst > 0
    assert 0 < report.outputs[0].sqnr < 60


def test_of_outputs_that_differ_by_a_tie_it_says_why():
    off = Gap("output 0", 1.0, 0.01, 60.0, codes=True)
    right, wrong = Boundary("tag0", (off,), ""), Boundary("tag0", (off,), "differs")
    first, verified, why = str(VerificationReport((off,), (right,))).splitlines()
    assert (first, verified) == ("output 0: 1 code at most, 0.01 on average, 60.0 dB", "tag0: verified")
    assert "ties" in why
    assert "ties" not in str(VerificationReport((off,), (wrong,)))
    for gap in (Gap("output 0", 0.0, 0.0, math.inf, codes=True), Gap("output 0", 0.5, 0.1, 20.0, codes=False)):
        assert "ties" not in str(VerificationReport((gap,), (right,)))


def test_of_a_float_delegate_the_operator_alone_is_blamed():
    net, spec = Lambda(lambda m, x: m.conv(torch.tanh(x))), tosa("TOSA-1.0+FP")
    with planting.planted("RewriteConvPass", planting.data(1, lambda weight: weight * 1.1, "tosa::CONV2D")):
        manager = lower(net, image(), SafeArmPartitioner(spec, verify=False))
    report = safe_arm.verify(manager, [image()], reference=torch.export.export(net, image()))
    assert report.first_wrong.reason.startswith("aten_convolution_default: differs by up to")


def test_without_a_reference_the_delegates_own_graphs_are_it(lowered, wrong):
    assert safe_arm.verify(lowered[1], [image()]).verified
    assert safe_arm.verify(wrong, [image()]).outputs[0].worst > 0


def partly_float(part, first):
    """A convolution that is quantised, and what comes of it that is not, or the other way round."""
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(4, 4, 3, padding=1), part
    return torch.nn.Sequential(*(layers[::-1] if first else layers)).eval()


@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
@pytest.mark.parametrize("part", [torch.nn.Sigmoid, torch.nn.Linear], ids=["sigmoid", "linear"])
def test_what_is_left_float_is_computed_in_double_as_well(part, first):
    spec = tosa(PROFILES[1])
    net = partly_float(part() if part is torch.nn.Sigmoid else part(8, 8), first)
    quantizer = SafeTOSAQuantizer(spec)
    quantizer.set_global(get_symmetric_quantization_config())
    quantizer.set_module_type(part, None)
    model = torch.export.export(net, image()).module(check_guards=False)
    graph_module = quantizer.quantize_with_submodules(model, [image()])
    manager = lower(graph_module, image(), SafeArmPartitioner(spec, verify=False))
    for reference in (graph_module, torch.export.export(graph_module, image())):
        report = safe_arm.verify(manager, [image(), image(1)], reference=reference)
        assert report.verified
        # Float32 is 1e-7 off of what it rounds; the reference in float32 would be as far off again, elsewhere.
        assert all(gap.worst < (0.5 if gap.codes else 1e-6) for gap in report.outputs), report.outputs
    evaluate_in_double(graph_module)
    assert graph_module(*image()).dtype == torch.float64


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([], "there are no samples"),
        ([(torch.full((1, 4, 8, 8), torch.nan),)], "input 0 of sample 0 has a NaN"),
        ([image(), (torch.zeros(1, 4, 8, 9),)], r"input 'x' of sample 1 is float32 of shape \(1, 4, 8, 9\)"),
        ([(*image(), *image())], "sample 0 has 2 tensors; the model takes 1"),
        (image(), "sample 0 is a Tensor; give a tuple"),
        ([(image()[0].numpy(),)], "sample 0 holds a ndarray; give tensors"),
    ],
    ids=["none", "nan", "shape", "count", "tensor", "array"],
)
def test_bad_samples(lowered, samples, says):
    with pytest.raises(UsageError, match=says):
        safe_arm.verify(lowered[1], samples)


def test_a_float_net_is_no_reference(lowered):
    with pytest.raises(UsageError, match=r"the reference is the converted graph module .*, not ReLU"):
        safe_arm.verify(lowered[1], [image()], reference=torch.nn.ReLU())


def by_keyword(m, x, *, shift, scale=None):
    return m.conv(x) + shift


def of_options(m, x, mode="relu", times=2, bias=None, flag=True):
    y = m.conv(x) * times
    return torch.relu(y) if mode == "relu" and flag else y


def nested(m, inputs):
    y = torch.relu(m.conv(inputs["image"])) + inputs["more"][0]
    return {"logits": y, "none": None, "more": [y * 2, 3]}


SHIFT = (torch.linspace(-1, 1, 4).view(1, 4, 1, 1),)
INPUTS = {
    "keywords": (by_keyword, image(), {"shift": SHIFT[0], "scale": None}, (*image(), *SHIFT), ["output 0"]),
    "options": (of_options, (*image(), "relu", 3, None), {}, (*image(), "relu", 3, None), ["output 0"]),
    "options left out": (of_options, (*image(), "relu", 3, None), {}, image(), ["output 0"]),
    "nested": (nested, ({"image": image()[0], "more": [SHIFT[0]]},), {}, None, ["logits", "more[0]"]),
    "nested, flat": (
        nested,
        ({"image": image()[0], "more": [SHIFT[0]]},),
        {},
        (*image(), *SHIFT),
        ["logits", "more[0]"],
    ),
}


@pytest.mark.parametrize("with_reference", [True, False])
@pytest.mark.parametrize(("rule", "args", "keywords", "sample", "names"), INPUTS.values(), ids=INPUTS)
def test_inputs_are_taken_as_the_model_takes_them(rule, args, keywords, sample, names, with_reference):
    spec = tosa(PROFILES[0])
    net = type("Net", (torch.nn.Module,), {"forward": rule})()
    net.conv = torch.nn.Conv2d(4, 4, 1)
    prepared = prepare_pt2e(torch.export.export(net, args, keywords).module(), quantizer_of())
    with torch.no_grad():
        prepared(*args, **keywords)
    graph_module = convert_pt2e(prepared)
    partitioner = SafeArmPartitioner(spec, verify_samples=[sample or args])
    program = torch.export.export(graph_module, args, keywords)
    manager = to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=EDGE)
    report = safe_arm.verify(manager, [sample or args], reference=graph_module if with_reference else None)
    assert report.verified
    assert [(gap.name, gap.worst) for gap in report.outputs] == [(name, 0.0) for name in names]


def test_a_method_of_several_is_named():
    spec = tosa(PROFILES[0])
    net = Lambda(lambda m, x: torch.relu(m.conv(x)))
    program = torch.export.export(quantize(net, image(), spec), image())
    manager = to_edge_transform_and_lower(
        {"encode": program, "decode": program}, partitioner=[SafeArmPartitioner(spec)], compile_config=EDGE
    )
    assert safe_arm.verify(manager, [image()], method="decode").verified
    for method in ("", "run"):
        with pytest.raises(UsageError, match="accepted: decode, encode"):
            safe_arm.verify(manager, [image()], method=method)
    alone = to_edge_transform_and_lower({"step": program}, partitioner=[SafeArmPartitioner(spec)], compile_config=EDGE)
    assert safe_arm.verify(alone, [image()]).verified


def test_a_model_is_no_lowered_program(lowered):
    says = "verify takes a lowered program, what to_edge_transform_and_lower returns, not GraphModule"
    with pytest.raises(UsageError, match=says):
        safe_arm.verify(lowered[0], [image()])


def test_a_constant_computed_from_parameters_with_gradients_on():
    net = Built(lambda m, x: torch.max(m.weights.tan(), x), weights=torch.nn.Parameter(torch.linspace(-1, 1, 8)))
    spec = tosa(PROFILES[1])
    with torch.enable_grad():
        graph_module = quantize(net, image(), spec)
        lowered = lower(graph_module, image(), SafeArmPartitioner(spec))
        report = safe_arm.verify(lowered, [image(1)], reference=graph_module)
    assert report.verified
    assert report.outputs[0].worst == 0


def test_a_step_in_bfloat16_is_evaluated_in_double():
    """The exported graph asserts the dtype of what it casts, which has another here."""
    net = Lambda(lambda m, x: torch.relu(m.conv(x)).bfloat16().float())
    graph_module = torch.export.export(net, image()).module(check_guards=False)
    edge = lower(graph_module, image(), SafeArmPartitioner(tosa("TOSA-1.0+FP")))
    assert safe_arm.verify(edge, [image()], reference=graph_module).boundaries


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the model runs in this process")
def test_a_model_that_aborts_ends_no_process_but_its_own(lowered, monkeypatch):
    graph_module, ours, _ = lowered
    break_model(monkeypatch, "os.abort()")
    with pytest.raises(NoResultError, match="ended by signal 6"):
        safe_arm.verify(ours, [image()], reference=graph_module)


def test_a_size_that_a_pass_of_executorch_wrote_into_the_graph_is_that_of_the_inputs():
    """It replaces what joins nothing but empty tensors; its emitter does not take that (C-cat-of-nothing)."""
    inputs = (torch.ones(2, 3, 0), torch.ones(2, 3))
    net = Lambda(lambda m, x, y: (torch.cat((x, x), 1), y * 2))
    any_size = {0: torch.export.Dim.AUTO}
    program = torch.export.export(net, inputs, dynamic_shapes=(any_size, (any_size,)))
    manager = to_edge_transform_and_lower(program, partitioner=[SafeArmPartitioner(tosa("TOSA-1.0+FP"))])
    report = safe_arm.verify(manager, [inputs, (torch.ones(5, 3, 0), torch.ones(5, 3))])
    assert [gap.worst for gap in report.outputs] == [0, 0]


def test_a_constant_that_is_expanded_is_no_state():
    def shifted():
        states = {"shift": torch.tensor([0.5]).expand(4), "calls": torch.zeros(1, dtype=torch.int64)}
        return Built(lambda m, x: x + m.shift + m.calls.add_(1), **states)

    samples = [(torch.full((1, 4), value),) for value in (0.5, 0.25)]
    manager = lower(shifted(), samples[0], SafeArmPartitioner(tosa("TOSA-1.0+FP")))
    reference = torch.export.export(shifted(), samples[0])
    assert [gap.worst for gap in safe_arm.verify(manager, samples, reference=reference).outputs] == [0]


def test_of_what_is_nan_before_it_is_quantised_no_code_is_asked(profile):
    """A code of the base is -1 in float32 and -0.999999996 in double, whose power is NaN."""
    inputs = (torch.rand(4, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1,)
    net = Lambda(lambda m, x: torch.pow(torch.clamp(1e6 * x, -1, 0), torch.clamp(1e6 * x, -1, 0)))
    graph_module = quantize(net, inputs, tosa(profile))
    manager = lower(graph_module, inputs, SafeArmPartitioner(tosa(profile), verify=True))
    assert codes_apart(manager, graph_module, inputs) == 0  # In float32, as the user runs it.
    report = safe_arm.verify(manager, [inputs], reference=graph_module)
    assert report.first_wrong is None
    assert report.outputs[0].worst > 100  # A NaN, whatever it becomes.


def test_two_delegates_of_one_name_have_each_their_own_outputs():
    """Found by the fuzzer, seed 1, case 7."""

    def forward(m, x, y):
        return torch.stack((x, x), 0), y, torch.where(x > 0, x, torch.zeros_like(x)).min(0)[0], x

    inputs = torch.tensor(0.5), torch.tensor(0.25)
    graph_module = quantize(Lambda(forward), inputs, tosa(PROFILES[1]))
    manager = lower(graph_module, inputs, SafeArmPartitioner(tosa(PROFILES[1]), non_fuseable="propagate"))
    found = safe_arm.verify(manager, [inputs], reference=graph_module)
    assert [len(each.gaps) for each in found.boundaries] == [2, 4]
    assert found.first_wrong is None
    assert [gap.worst for gap in found.outputs] == [0.0] * 4
