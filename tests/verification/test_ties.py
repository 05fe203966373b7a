"""Values in the middle between two codes, which TOSA rounds up and PyTorch either way.

Means of a few codes and interpolations between them lie there often. What PyTorch makes of such a value depends on
float32's rounding of the codes' values, so no integer arithmetic gives the same; every other value is exact.
"""

import functools

import pytest
import torch
import torch.nn.functional as F
from lowering import PROFILES, lower, lower_safely, quantize, tosa
from proving import delegates_of, quantized
from small import Lambda, image

import safe_arm
from safe_arm import SafeArmPartitioner
from safe_arm.core.island import QUANTIZE, op_name
from safe_arm.verification.delegate import user_inputs
from safe_arm.verification.evaluation import Evaluation
from safe_arm.verification.proof import prove
from safe_arm.verification.reference_model import run_lowered
from safe_arm.verification.stimuli import Stimulus

WIDE = "TOSA-1.0+INT+int16"
NETS = {
    "avg_pool2d": lambda m, x: F.avg_pool2d(x, 2, 2, 1, count_include_pad=False),  # Others become convolutions.
    "avg_pool2d of a border": lambda m, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "bilinear resize": lambda m, x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear resize to a size": lambda m, x: F.interpolate(x, size=(12, 13), mode="bilinear"),
}


def unrounded(graph_module, inputs):
    """What the last quantiser of a graph sees, in codes and in double, and its step."""
    evaluation = Evaluation(dict(zip(graph_module.graph.find_nodes(op="placeholder"), inputs, strict=True)))
    nodes = [node for node in graph_module.graph.nodes if node.op not in ("placeholder", "output")]
    evaluation.run(nodes)
    quantize = [node for node in nodes if op_name(node) == QUANTIZE][-1]
    return evaluation.unrounded[quantize], float(quantize.args[1]), int(quantize.args[2])


@pytest.mark.parametrize("narrow", [False, True, None], ids=["-128", "-127", "int16"])
@pytest.mark.parametrize("op", NETS)
def test_they_are_all_that_differs(op, narrow):
    inputs, net = image(), Lambda(NETS[op])
    if narrow is None:
        profile, graph_module = WIDE, quantized(net, inputs, WIDE, wide=True)
    else:
        profile, graph_module = PROFILES[0], quantize(net, inputs, tosa(PROFILES[0]), narrow=narrow)
    manager = lower(graph_module, inputs, SafeArmPartitioner(tosa(profile), verify=False))
    sample = image(3)
    exact, step, zero = unrounded(graph_module, sample)
    (actual,) = run_lowered(manager.exported_program(), sample)
    codes = actual.double() / step + zero
    ties = ((exact - exact.floor()) - 0.5).abs() < 1e-4
    assert ((codes - exact.round()).abs()[~ties] < 1e-2).all()
    assert ((codes - exact.round()).abs()[ties] > 0.5).any()


@pytest.mark.parametrize(("op", "name"), [("avg_pool2d", "avg_pool2d"), ("bilinear resize", "upsample_bilinear2d")])
def test_what_a_floor_makes_of_them_is_told(op, name):
    inputs = image(0, 5.0)
    net = Lambda(lambda m, x: torch.floor(NETS[op](m, x)) * 2)
    (delegate,) = delegates_of(quantized(net, inputs, PROFILES[0]), inputs, PROFILES[0])
    proof = prove(delegate)
    assert (proof.verified, proof.ties, proof.tolerated) == (True, (name,), ())
    assert proof.apart_worst > 8
    assert 0 < proof.apart_mean < proof.apart_worst
    assert (proof.apart_output, proof.apart_unit) == (0, "codes")


@functools.cache
def delegate_of(op):
    (delegate,) = delegates_of(quantized(Lambda(NETS[op]), image(), PROFILES[0]), image(), PROFILES[0])
    return delegate


@pytest.mark.parametrize("op", NETS)
def test_a_single_code_at_the_output_is_told_too(op):
    proof = prove(delegate_of(op))
    assert (proof.verified, proof.worst, proof.apart_worst, len(proof.ties)) == (True, 0.0, 1.0, 1)


def test_every_set_of_inputs_is_measured_not_the_first_alone():
    delegate = delegate_of("avg_pool2d")
    (node,) = user_inputs(delegate.program)
    flat = Stimulus("flat", (torch.zeros(node.meta["val"].shape, dtype=torch.int8),))
    codes = torch.randint(-128, 128, flat.inputs[0].shape, generator=torch.Generator().manual_seed(0))
    tie = Stimulus("ties", (codes.to(torch.int8),))
    exact = prove(delegate, [flat], most=1)
    assert (exact.apart_worst, exact.apart_mean, exact.ties) == (0.0, 0.0, ())
    alone, later = prove(delegate, [tie], most=1), prove(delegate, [flat, tie], most=2)
    assert (later.apart_worst, later.ties) == (alone.apart_worst, alone.ties) == (1.0, ("avg_pool2d",))
    assert later.apart_mean == alone.apart_mean / 2 > 0


def test_ties_that_add_up_are_as_far_off_as_a_comparison_of_the_whole_program_says():
    inputs = image(0, 5.0)
    net = Lambda(lambda m, x: m.conv(NETS["bilinear resize"](m, NETS["avg_pool2d"](m, x))))
    graph_module = quantized(net, inputs, PROFILES[0], more=[image(1, 5.0)])
    samples = [image(seed, 5.0) for seed in range(2, 5)]
    manager, partitioner = lower_safely(graph_module, inputs, tosa(PROFILES[0]), verify_samples=samples)
    (record,) = partitioner.report.verifications
    (gap,) = safe_arm.verify(manager, samples, reference=graph_module).outputs
    assert gap.worst >= 1
    assert record.apart_worst >= gap.worst
    assert set(record.ties) == {"avg_pool2d", "upsample_bilinear2d"}
    assert "ties of avg_pool2d, upsample_bilinear2d add up to" in " ".join(str(partitioner.report).split())
