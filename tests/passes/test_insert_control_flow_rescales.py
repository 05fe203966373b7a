"""Branches read each operand of control flow in its own domain."""

import torch
from graph_changes import quantised_whole
from lowering import lower_exactly, stock_codes_apart, tosa
from small import Lambda
from stubborn import quantizer_of

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
