"""A quantised graph evaluated in double is what integers compute."""

import copy

import torch
from lowering import PROFILES, lower, output_steps, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm.verification.double import evaluate_in_double
from safe_arm.verification.reference_model import run_lowered


def with_short_scales(graph_module):
    """Round the scales of activations to two digits: calibration's depend on the processor, and with them the ties."""
    for node in graph_module.graph.nodes:
        if "quantize_per_tensor" in str(node.target):
            value, scale, *others = node.args
            node.args = (value, float(f"{scale:.2g}"), *others)
    graph_module.recompile()
    return graph_module


def test_it_settles_the_near_ties_that_float32_gets_wrong():
    """On 256 x 256 values a chain of convolutions meets some: then float32 is a code off and the delegate is right."""
    inputs = (torch.rand((1, 4, 256, 256), generator=torch.Generator().manual_seed(0)) * 2 - 1,)
    torch.manual_seed(0)
    layers = []
    for _ in range(4):  # Without biases, so that a scale can be changed by itself.
        layers += torch.nn.Conv2d(4, 4, 3, padding=1, bias=False), torch.nn.ReLU()
    graph_module = with_short_scales(quantize(torch.nn.Sequential(*layers).eval(), inputs, tosa(PROFILES[0])))
    manager = lower(graph_module, inputs, SafeArmPartitioner(tosa(PROFILES[0]), verify=False))
    (actual,) = run_lowered(manager.exported_program(), inputs)
    (step,) = output_steps(graph_module)

    def codes_off():
        return torch.round((actual - graph_module(*inputs)).abs().max() / step)

    assert codes_off() == 1
    evaluate_in_double(graph_module)
    assert codes_off() == 0


def test_on_small_nets_it_changes_no_code_and_twice_equals_once(small):
    graph_module = copy.deepcopy(small.graph_module)
    single = graph_module(*image())
    (step,) = output_steps(graph_module)
    evaluate_in_double(graph_module)
    assert graph_module(*image()).dtype == torch.float64
    assert torch.round((single - graph_module(*image())).abs().max() / step) == 0
    once = [n.target for n in graph_module.graph.nodes]
    evaluate_in_double(graph_module)
    assert [n.target for n in graph_module.graph.nodes] == once


def test_a_lowered_graph_keeps_its_calls_of_delegates(small):
    program = copy.deepcopy(small.manager.exported_program())
    expected = run_lowered(program, image())[0]
    evaluate_in_double(program.graph_module)
    assert (run_lowered(program, image())[0] - expected).abs().max() < 1e-6  # a float32 scale times codes


def test_branches_of_control_flow_compute_in_double_too():
    net = Lambda(lambda m, x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))
    x = image()[0].abs()
    graph_module = torch.export.export(net, (x,)).module(check_guards=False)
    evaluate_in_double(graph_module)
    for value, branch in ((x, torch.sin), (-x, torch.cos)):
        assert torch.equal(graph_module(value), branch(value.double()))
