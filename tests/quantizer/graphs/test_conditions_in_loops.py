"""A loop may decide in its body."""

import pytest
import torch
from branching import ON_DEVICE, quantised
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import lower_exactly, tosa
from ratios import ratio
from small import Lambda
from stubborn import exported
from torch._higher_order_ops.while_loop import while_loop

from safe_arm.quantizer.graphs.conditions_in_loops import choose_in_loops

SAMPLES = [(torch.randn(2, 6, generator=torch.Generator().manual_seed(seed)) + 0.5 - seed % 2,) for seed in range(4)]


def decided(x):
    return torch.cond(x.sum() > 0, lambda x: (x + torch.arange(6) * 0.1, x.tanh()), lambda x: (x.abs(), -x), (x,))


def looped(m, x):
    return while_loop(lambda h: h.sum() < 3, lambda h: (decided(h)[0] + 1.0,), (x,))[0]


def deep(m, x):
    def body(h):
        return (torch.cond(h.sum() > -9, lambda h: sum(decided(h)).abs() + 2.0, lambda h: h + 1.0, (h,)),)

    return while_loop(lambda h: h.sum() < 6, body, (x,))[0]


def plain(m, x):
    return torch.cond(x.sum() > 0, lambda x: decided(x)[0], torch.neg, (x,))


RULES = {"looped": looped, "deep": deep}


def conditions(model):
    graphs = [module.graph for module in model.modules() if isinstance(module, torch.fx.GraphModule)]
    return [len(graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)) for graph in graphs]


def test_stock_loses_the_branches_of_a_condition_in_a_loop():
    def body(h):
        return (torch.cond(h.amax() > h.mean(), torch.abs, torch.neg, (h,)),)

    with pytest.raises(Exception, match="DuplicateDQPass"):
        quantised(lambda m, x: while_loop(lambda h: h.sum() < h.abs().sum(), body, (x,))[0], SAMPLES, TOSAQuantizer)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_one_delegate_computes_it_exactly(rule):
    graph_module = quantised(rule, SAMPLES)
    assert ratio(graph_module, rule, SAMPLES) > 30
    lower_exactly(graph_module, tosa(ON_DEVICE), *SAMPLES)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_graph_computes_what_it_did_and_is_changed_once(rule):
    model = exported(Lambda(rule), SAMPLES[0])
    expected = [model(*sample) for sample in SAMPLES]
    choose_in_loops(model)
    assert all(torch.equal(model(*sample), value) for sample, value in zip(SAMPLES, expected, strict=True))
    once = model.print_readable(print_output=False)
    choose_in_loops(model)
    assert model.print_readable(print_output=False) == once


def test_a_condition_outside_of_loops_is_left_alone():
    model = exported(Lambda(plain), SAMPLES[0])
    before = str(model.graph)
    choose_in_loops(model)
    assert str(model.graph) == before
    assert sum(conditions(model)) == 2
