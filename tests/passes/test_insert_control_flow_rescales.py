"""Branches read each operand of control flow in its own domain."""

import torch
from graph_changes import quantised_whole
from lowering import lower_exactly, stock_codes_apart, tosa
from small import Lambda
from stubborn import quantizer_of
from torch.fx import Graph

from safe_arm._compat.upstream import QuantArgs
from safe_arm.passes.insert_control_flow_rescales import InsertControlFlowRescalesPass
from safe_arm.passes.record_element_qparams import ELEMENT_QPARAMS

PROFILE = "TOSA-1.0+INT+cf"
SAMPLES = [
    ((2 + 2 * (seed % 2)) * torch.rand(2, 6, generator=torch.Generator().manual_seed(seed)),) for seed in range(8)
]


def of_two(m, x):
    return torch.cond(x.sum() > 18, lambda a, b: a + b * 100, lambda a, b: a * b, (x, x.tanh() * 0.01))


def of_one(m, x):
    return torch.cond(x.sum() > 18, lambda a: a + 1.0, lambda a: a * a, (x,))


def graph_of(rule):
    with torch.no_grad():
        return quantised_whole(quantizer_of(profile=PROFILE), Lambda(rule), SAMPLES)


def applied(graph_module):
    partitioner = lower_exactly(graph_module, tosa(PROFILE), *SAMPLES[:2], verify=False)
    return {each.correction for each in partitioner.report.applied}


def test_stock_reads_the_second_operand_in_the_domain_of_the_first_and_ours_does_not():
    graph_module = graph_of(of_two)
    assert stock_codes_apart(graph_module, SAMPLES[0], tosa(PROFILE), *SAMPLES[:2]) > 20
    assert "own-operands" in applied(graph_module)


def test_the_near_miss_of_one_operand_is_left_to_stock():
    assert "own-operands" not in applied(graph_of(of_one))


def test_each_quantised_operand_has_its_own_domain_and_a_float_one_has_none():
    graph = Graph()
    x = graph.placeholder("x")
    condition = graph.call_function(torch.ops.higher_order.cond, (x, x, x, [x, x, x]))
    first, last = (QuantArgs(scale, 0, -128, 127, torch.int8) for scale in (0.5, 0.25))
    condition.meta = {"input_qparams": {3: first}, ELEMENT_QPARAMS: {3: [first, None, last]}}
    assert InsertControlFlowRescalesPass()._get_input_qparams_map(condition, 3) == {0: first, 2: last}
