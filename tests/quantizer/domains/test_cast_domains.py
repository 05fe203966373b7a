"""Integers that are cast to floats leave what they are joined with its fractions."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, lower_exactly, min_max, quantize, tosa
from small import Built

SPEC = tosa(PROFILES[0])
INPUTS = (torch.arange(10, dtype=torch.int32).view(2, 5), torch.linspace(-1, 1, 10).view(2, 5))
MASK = torch.arange(10).view(2, 5) % 3 == 0
JOINS = {
    "a cat": lambda m, x, y: torch.cat((x.float(), y)),
    "a view in between": lambda m, x, y: torch.cat((x.float().view(10), y.view(10))),
    "a stack": lambda m, x, y: torch.stack((x.float(), y)),
    "a where": lambda m, x, y: torch.where(m.mask, x.float(), y),
    "a padding": lambda m, x, y: F.pad(x.float(), (1, 1), value=0.5) * 1.5,
}
CLAMPS = {
    "relu": lambda m, x, y: x.float().relu() + y,
    "clamp": lambda m, x, y: x.float().clamp(2.5, 7.5) * y,
    "relu6": lambda m, x, y: F.relu6(x.float()) + y,
}
WHOLE = {
    "a cat": lambda m, x, y: torch.cat((x.float(), x.float().flip(0))),
    "a padding with an integer": lambda m, x, y: F.pad(x.float(), (1, 1), value=2.0),
    "a view": lambda m, x, y: x.float().view(10),
}


def quantised(rule, **how):
    net = Built(rule, mask=MASK).eval()
    return net, quantize(net, INPUTS, SPEC, config=min_max(), **how)


def error(rule, **how):
    net, graph_module = quantised(rule, **how)
    return float((graph_module(*INPUTS) - net(*INPUTS)).abs().max())


@pytest.mark.parametrize("rule", JOINS.values(), ids=JOINS)
def test_stock_rounds_fractions_to_whole_numbers(rule):
    assert error(rule, quantizer_class=TOSAQuantizer) > 0.3


@pytest.mark.parametrize("rule", JOINS.values(), ids=JOINS)
def test_ours_keeps_fractions(rule):
    assert error(rule) < 0.05


@pytest.mark.parametrize("rule", CLAMPS.values(), ids=CLAMPS)
def test_a_clamp_of_a_cast_is_delegated(rule):
    net, graph_module = quantised(rule)
    lower_exactly(graph_module, SPEC, INPUTS)
    assert (graph_module(*INPUTS) - net(*INPUTS)).abs().max() < 0.08


@pytest.mark.parametrize("rule", WHOLE.values(), ids=WHOLE)
def test_whole_numbers_alone_stay_in_32_bits(rule):
    net, graph_module = quantised(lambda m, x, y: (rule(m, x, y), y * 2))
    wide = [node for node in graph_module.graph.nodes if torch.int32 in node.args and "quantize" in node.name]
    assert {str(node.args[0].target) for node in wide} > {"aten.to.dtype"}
    assert torch.equal(graph_module(*INPUTS)[0], net(*INPUTS)[0])
