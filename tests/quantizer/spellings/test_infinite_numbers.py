"""Infinite bounds and orders mean what they say in a quantised graph."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import graph_of
from lowering import PROFILES, codes_apart, lower, min_max, quantize, tosa
from rewriting import Correcting, codes_off
from small import Lambda
from stubborn import exported

from safe_arm import SafeArmPartitioner
from safe_arm.quantizer.spellings.infinite_numbers import norms_of_infinite_order, open_infinite_bounds

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


class TestBounds(Correcting):
    step = staticmethod(open_infinite_bounds)
    inputs = INPUTS
    written = OPEN
    gone = ("inf",)
    kept: ClassVar = {
        "finite bounds": lambda m, x: torch.clamp(x, 0.0, 6.0),
        "one bound": lambda m, x: torch.clamp(x, min=0.0),
        "hardtanh": lambda m, x: F.hardtanh(x, -2.0, 2.0),
        "a number to fill in": lambda m, x: x.masked_fill(x > 0, -INF),
        "an infinite result": lambda m, x: torch.clamp(x, INF, INF),
        "a norm of order 2": lambda m, x: torch.linalg.vector_norm(x, 2, 1),
        "distances of order 2": lambda m, x: F.pdist(x[0], 2.0),
    }
    tolerance: ClassVar = {"rtol": 0, "atol": 0}
    stock_is_off = 6
    ours_is_off = 3

    def test_the_near_miss_is_left_alone(self, kept):
        model = self.graph(kept)
        before = str(model.graph).replace(", None)", ")")
        open_infinite_bounds(model)
        assert str(model.graph).replace(", None)", ")") == before or "inf, None" in str(model.graph)
        assert norms_of_infinite_order(model) == {}


@pytest.mark.parametrize("rule", NORMS.values(), ids=NORMS)
def test_stock_makes_norms_of_order_255_of_them(rule):
    stock = quantize(Lambda(rule), INPUTS, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer, config=min_max())
    assert not codes_off(stock, rule, INPUTS) <= 6


def test_a_norm_of_a_matrix_of_order_255_is_none():
    net = Lambda(lambda m, x: torch.linalg.matrix_norm(x, INF))
    with pytest.raises(RuntimeError, match="Order 255 not supported"):
        quantize(net, INPUTS, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    assert codes_off(quantize(net, INPUTS, tosa(PROFILES[0])), net.function, INPUTS) <= 3


@pytest.mark.parametrize("rule", NORMS.values(), ids=NORMS)
def test_ours_computes_norms_of_infinite_order(rule, profile):
    graph_module = quantize(Lambda(rule), INPUTS, tosa(profile))
    assert codes_off(graph_module, rule, INPUTS) <= 3
    manager = lower(graph_module, INPUTS, SafeArmPartitioner(tosa(profile)))
    assert codes_apart(manager, graph_module, INPUTS) == 0


@pytest.mark.parametrize("rule", NORMS.values(), ids=NORMS)
def test_a_norm_of_infinite_order_is_told(rule):
    assert len(norms_of_infinite_order(graph_of(rule, *INPUTS))) == 1


def test_a_branch_s_bounds_are_open_too():
    net = Lambda(lambda m, x: torch.cond(x.sum() > 0, lambda x: x.clamp(0.0, INF), lambda x: x * 2.0, (x,)))
    inputs = (torch.full((1, 4), 700.0),)
    model = exported(net, inputs)
    open_infinite_bounds(model)
    assert all("inf" not in each.code for each in model.modules() if isinstance(each, torch.fx.GraphModule))
    assert torch.equal(model(*inputs), inputs[0])
