"""A non-fuseable island is refused whole, alike in every profile, and its neighbours stay."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.ethosu import EthosUCompileSpec
from lowering import PROFILES, codes_apart, lower, min_max, quantize, tosa
from prepared import Prepared, prepared
from small import HandMadeIsland, Lambda, image, mark_quantised

from safe_arm import SafeArmPartitioner
from safe_arm.partitioner.plan import plan

U55_AND_U85 = ("ethos-u55-128", "ethos-u85-256")


def neighbours(m, x):
    """conv_b and the cat are neighbours of the island conv-relu."""
    return m.conv_b(torch.cat((F.relu(m.conv(x))[:, :2], x[:, :2]), 1))


def hand_made(activation, **qparams):
    module = torch.export.export(HandMadeIsland(activation, **qparams), image()).module()
    return Prepared(None, graph_module=mark_quantised(module)).program()


def refused_ops(report):
    return [v.op.removeprefix("aten::") for v in report.fallbacks if v.issue]


def test_conv_and_activation_are_refused_together_and_neighbours_stay(profile):
    net = prepared(neighbours, profile)
    manager, report = net.safely(verify=False)
    assert refused_ops(report) == ["convolution", "relu"]
    assert {v.op for v in report.compute if v.delegate} >= {"aten::cat", "aten::convolution", "aten::slice_copy"}
    assert report.propagate_would_keep == report.islands_refused == 1
    assert codes_apart(manager, net.graph_module, image(), image(1, 2.0)) == 0


@pytest.mark.parametrize("target", U55_AND_U85)
def test_the_same_nodes_are_refused_on_ethos_u(target):
    partitioner = SafeArmPartitioner(EthosUCompileSpec(target), preflight=False)
    partitioner.partition(prepared(neighbours, PROFILES[0]).program())
    assert refused_ops(partitioner.report) == ["convolution", "relu"]


def test_the_whole_unit_goes_from_dq_to_q():
    """Nothing of a refused island stays behind in a delegate, not even its dequantised weight."""
    (refusal,) = plan(prepared(neighbours, PROFILES[0]).program(), "reject").refusals
    names = [str(n.target).split(".")[-2] for n in refusal.nodes]
    assert names.count("dequantize_per_channel") == 2  # weight and bias
    assert names.count("dequantize_per_tensor") == 1
    assert names.count("quantize_per_tensor") == 1
    assert {n.name for n in refusal.nodes} >= {"aten_convolution_default", "aten_relu_default"}


def test_a_refused_linear_is_decomposed_so_that_the_cpu_can_run_it(profile):
    net, inputs = Lambda(lambda m, x: torch.cat((F.relu(m.linear(x)), x), 1)), image()
    graph_module = quantize(net, inputs, tosa(profile), config=min_max())
    manager = lower(graph_module, inputs, SafeArmPartitioner(tosa(profile), verify=False))
    left = [str(n.target) for n in manager.exported_program().graph.nodes if n.op == "call_function"]
    assert not any("aten.linear" in target for target in left)
    assert codes_apart(manager, graph_module, inputs, image(1, 2.0)) == 0


SPELLINGS = {
    "a module": lambda m, x: m.linear(x),
    "a function": lambda m, x: F.linear(x, m.linear.weight, m.linear.bias),
    "addmm, which is quantised as a linear": lambda m, x: torch.addmm(m.linear.bias, x, m.linear.weight.t()),
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_the_reason_of_a_refused_linear_is_that_it_cannot_be_fused(spelling):
    """It is decomposed only because it is refused."""

    net = Lambda(lambda m, x: torch.cat((F.relu(spelling(m, x)), x), 1))
    inputs = (torch.randn(2, 8, generator=torch.Generator().manual_seed(0)),)
    graph_module = quantize(net, inputs, tosa(PROFILES[0]), config=min_max())
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]), verify=False)
    lower(graph_module, inputs, partitioner)
    (reason,) = {str(each.reason) for each in partitioner.report.fallbacks}
    assert "relu cannot be fused: its lower bound 0 has code" in reason


@pytest.mark.parametrize(
    ("activation", "zero_point", "qmin", "refused"),
    [
        pytest.param(F.relu, -100, -128, True, id="zero point off qmin"),
        pytest.param(F.relu, -128, -128, False, id="zero point at qmin"),
        pytest.param(F.relu, -127, -127, False, id="zero point at a narrowed qmin"),
        pytest.param(F.relu6, -128, -128, True, id="relu6, six inside the range"),
        pytest.param(lambda a: F.hardtanh(a, 0.0, 20.0), -128, -128, False, id="hardtanh, bound beyond the range"),
        pytest.param(lambda a: torch.clamp(a, min=0.0), -100, -128, True, id="clamp, lower bound"),
        pytest.param(lambda a: torch.clamp(a, max=1.0), -100, -128, True, id="clamp, upper bound inside"),
        pytest.param(lambda a: torch.clamp(a, 0.0, 1.0), -128, -128, True, id="clamp, two bounds"),
        pytest.param(lambda a: torch.clamp(a, -2.0, 20.0), -100, -128, False, id="clamp, both beyond the range"),
        pytest.param(lambda a: F.relu(a) + a, -100, -128, False, id="not consumed alone"),
        pytest.param(torch.sigmoid, -100, -128, False, id="no clamp"),
    ],
)
def test_the_definition(activation, zero_point, qmin, refused):
    program = hand_made(activation, zero_point=zero_point, qmin=qmin)
    assert bool(plan(program, "reject").refusals) == refused
    assert not plan(program, "propagate").refusals


def test_the_reason_names_the_bound_the_code_and_the_limit():
    (refusal,) = plan(hand_made(F.relu6), "reject").refusals
    assert "its lower bound 0 has code -100, but saturation clamps at -128" in refusal.reason
    assert "its upper bound 6 has code 20, but saturation clamps at 127" in refusal.reason
    assert refusal.issue == "S1"


def test_planning_twice_is_planning_once_and_changes_nothing():
    program = prepared(neighbours, PROFILES[0]).program()
    before = str(program.graph)
    assert plan(program, "reject") == plan(program, "reject")
    assert str(program.graph) == before
