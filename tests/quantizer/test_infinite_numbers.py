"""Infinite bounds and orders mean what they say in a quantised graph."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes_once, graph_of
from lowering import PROFILES, codes_apart, delegates, lower, min_max, quantize, tosa
from small import Lambda
from stubborn import exported

from safe_arm import SafeArmPartitioner
from safe_arm.quantizer.infinite_numbers import norms_of_infinite_order, open_infinite_bounds

INF, LARGEST = float("inf"), torch.finfo(torch.float32).max
INPUTS = (torch.linspace(-1000, 1000, 36).view(1, 6, 6),)
OPEN = {
    "clamp": lambda m, x: torch.clamp(x, 0.0, INF),
    "clamp from below": lambda m, x: torch.clamp(x, -INF, 300.0),
    "finite in name": lambda m, x: torch.clamp(x, -LARGEST, 300.0),
    "hardtanh": lambda m, x: F.hardtanh(x, 0.0, INF),
    "in place": lambda m, x: (x * 1.5).clamp_(-400.0, INF),
    "no bound at all": lambda m, x: torch.clamp(x * 1.5, -INF, INF) + 1,
}
NORMS = {
    "renorm": lambda m, x: torch.renorm(x, INF, 1, 0.5),
    "cdist": lambda m, x: torch.cdist(x, x + 1, INF),
    "pdist": lambda m, x: F.pdist(x[0], INF),
    "linalg_norm": lambda m, x: torch.linalg.norm(x.flatten(), INF),
    "norm": lambda m, x: torch.ops.aten.norm.Scalar(x, INF),
    "dist": lambda m, x: torch.dist(x, x * 0.5, INF),
}
#: Of the steps of the output; rounding of inputs and outputs.
STEPS = 3


def worst(graph_module, rule):
    wanted = rule(None, *(each.clone() for each in INPUTS))
    return float((graph_module(*INPUTS) - wanted).abs().max() / (wanted.abs().max() / 127))


@pytest.mark.parametrize("rule", [*OPEN.values(), *NORMS.values()], ids=[*OPEN, *NORMS])
def test_stock_makes_255_of_them(rule):
    stock = quantize(Lambda(rule), INPUTS, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer, config=min_max())
    apart = worst(stock, rule)
    assert not apart <= 2 * STEPS


def test_a_norm_of_a_matrix_of_order_255_is_none():
    net = Lambda(lambda m, x: torch.linalg.matrix_norm(x, INF))
    with pytest.raises(RuntimeError, match="Order 255 not supported"):
        quantize(net, INPUTS, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    assert worst(quantize(net, INPUTS, tosa(PROFILES[0])), net.function) <= STEPS


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("rule", [*OPEN.values(), *NORMS.values()], ids=[*OPEN, *NORMS])
def test_ours_computes_what_the_net_does(rule, profile):
    graph_module = quantize(Lambda(rule), INPUTS, tosa(profile))
    assert worst(graph_module, rule) <= STEPS
    manager = lower(graph_module, INPUTS, SafeArmPartitioner(tosa(profile)))
    assert codes_apart(manager, graph_module, INPUTS) == 0
    if rule in OPEN.values():
        assert len(delegates(manager)) == 1


@pytest.mark.parametrize(
    "rule",
    [
        lambda m, x: torch.clamp(x, 0.0, 6.0),
        lambda m, x: torch.clamp(x, min=0.0),
        lambda m, x: F.hardtanh(x, -2.0, 2.0),
        lambda m, x: x.masked_fill(x > 0, -INF),
        lambda m, x: torch.clamp(x, INF, INF),
        lambda m, x: torch.linalg.vector_norm(x, 2, 1),
        lambda m, x: F.pdist(x[0], 2.0),
    ],
)
def test_the_near_miss_is_left_alone(rule):
    model = graph_of(rule, *INPUTS)
    before = str(model.graph)
    open_infinite_bounds(model)
    assert str(model.graph).replace(", None)", ")") == before.replace(", None)", ")") or "inf, None" in str(model.graph)
    assert norms_of_infinite_order(model) == {}


@pytest.mark.parametrize("rule", NORMS.values(), ids=NORMS)
def test_a_norm_of_infinite_order_is_told(rule):
    assert len(norms_of_infinite_order(graph_of(rule, *INPUTS))) == 1


def test_twice_equals_once():
    model = graph_of(OPEN["clamp"], *INPUTS)
    assert changes_once(open_infinite_bounds, model)
    assert "inf" not in str(model.graph)


def test_a_branch_s_bounds_are_open_too():
    net = Lambda(lambda m, x: torch.cond(x.sum() > 0, lambda x: x.clamp(0.0, INF), lambda x: x * 2.0, (x,)))
    inputs = (torch.full((1, 4), 700.0),)
    model = exported(net, inputs)
    open_infinite_bounds(model)
    assert all("inf" not in each.code for each in model.modules() if isinstance(each, torch.fx.GraphModule))
    assert torch.equal(model(*inputs), inputs[0])
