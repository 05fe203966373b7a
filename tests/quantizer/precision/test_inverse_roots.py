"""The reciprocal of a root is one operator, and the delegate computes it exactly."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from graph_changes import annotated, annotates_no_more
from lowering import WIDE, lower_safely, quantize, targets, tosa
from ratios import delegated_ratio, exactly_on, histogram_ratios, ours_exactly, ratio, ratios
from rewriting import Rewriting
from small import Lambda
from stubborn import exported, quantizer_of

from safe_arm.quantizer.precision.inverse_roots import keep_bounds, write_inverse_roots

ATEN = torch.ops.aten


def rows(seed):
    """Rows of a few values, whose lengths differ by some ten."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randn(1, 12, 1, generator=draw).exp()
    return (torch.randn(1, 12, 16, generator=draw) * lengths,)


SAMPLES = [rows(seed) for seed in range(8)]
NONE = (torch.cat((rows(0)[0], torch.zeros(1, 2, 16)), 1),)


def length(x):
    """The length of rows as stock's passes leave it."""
    return (x * x).sum(-1, True) ** 0.5


class TestInverseRoots(Rewriting):
    step = staticmethod(write_inverse_roots)
    inputs = rows(0)
    also = (NONE, (torch.full((1, 12, 16), 1e-15),))
    gone = ("aten.reciprocal", "aten.pow")
    tolerance: ClassVar = {"rtol": 1e-5, "atol": 1e-6, "equal_nan": True}
    written: ClassVar = {
        "length": lambda m, x: x * length(x).reciprocal(),
        "length with a lower bound": lambda m, x: x * length(x).clamp(1e-12).reciprocal(),
        "length with a large bound": lambda m, x: x * length(x).clamp(3).reciprocal(),
        "root mean square": lambda m, x: x * ((x * x).mean(-1, True) + 1e-3).pow(0.5).reciprocal(),
        "root of each value": lambda m, x: (x.abs() + 1).pow(0.5).reciprocal(),
    }
    kept: ClassVar = {
        "a root that others read": lambda m, x: (length(x).reciprocal() * x, length(x).clamp(1)),
        "an upper bound": lambda m, x: x * length(x).clamp(1e-3, 2.0).reciprocal(),
        "a bound whose square is 0": lambda m, x: x * length(x).clamp(1e-30).reciprocal(),
        "a bound of what may be negative": lambda m, x: x.sum(-1, True).pow(0.5).clamp(0.1).reciprocal(),
        "a cubic root": lambda m, x: (x.abs() + 1).pow(1 / 3).reciprocal(),
        "16 bits in the net": lambda m, x: (x.half().abs() + 1).pow(0.5).reciprocal(),
    }

    def test_the_near_miss_is_left_alone(self, kept):
        model = self.graph(kept)
        if kept is self.kept["a root that others read"]:
            first, second = model.graph.find_nodes(op="call_function", target=ATEN.pow.Tensor_Scalar)
            second.replace_all_uses_with(first)
        before = str(model.graph)
        write_inverse_roots(model)
        assert str(model.graph) == before


RULES = {
    "unit length": lambda m, x: F.normalize(x, dim=-1),
    "unit length of a large bound": lambda m, x: F.normalize(x, dim=-1, eps=0.5),
    "without a bound": lambda m, x: x / x.norm(dim=-1, keepdim=True),
    "root mean square": lambda m, x: x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "a norm of its own": lambda m, x: (x - x.mean(-1, True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-6),
}


#: What shares a domain with the values whose length is taken, and the values in other shapes.
BESIDE = {
    "joined with the values": lambda m, x: torch.cat((F.normalize(x, dim=-1), x), -1),
    "joined the other way": lambda m, x: torch.cat((x, F.normalize(x, dim=-1)), -1),
    "added to the values": lambda m, x: x + F.normalize(x, dim=-1),
    "of joined values": lambda m, x: F.normalize(torch.cat((x, x * 2), -1), dim=-1),
    "of one vector": lambda m, x: F.normalize(x.flatten(), dim=0),
    "of all values": lambda m, x: x / x.norm(),
    "one after the other": lambda m, x: F.normalize(F.normalize(x, dim=-1) + 1, dim=1),
    "by heads": lambda m, x: F.normalize(x.view(1, 12, 4, 4).transpose(1, 2), dim=-1),
}


@pytest.mark.parametrize("name", ["unit length", "unit length of a large bound", "without a bound"])
def test_stock_loses_short_rows_and_ours_does_not(name):
    borders, stock, ours = ratios(RULES[name], SAMPLES)
    assert stock < borders - 18
    assert ours > borders - 1


@pytest.mark.parametrize("name", ["root mean square", "a norm of its own"])
def test_stock_rounds_the_root_and_ours_does_not(name):
    stock, ours = histogram_ratios(RULES[name], SAMPLES)
    assert stock < 3
    assert ours > 11


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_one_delegate_is_exact(rule, profile):
    assert "reciprocal" not in targets(ours_exactly(rule, SAMPLES, profile))


@pytest.mark.parametrize("rule", BESIDE.values(), ids=BESIDE)
def test_it_is_exact_beside_other_values(rule):
    assert targets(ours_exactly(rule, SAMPLES[:2])).count("rsqrt") >= 2


def test_ethos_u_computes_it_exactly(ethos_u):
    rule = RULES["unit length"]
    assert ratio(exactly_on(ethos_u, rule, SAMPLES), rule, SAMPLES) > 19


@pytest.mark.filterwarnings("ignore:demoted from")
def test_16_bits_have_the_bound_in_the_domain_of_the_sum():
    profile = "TOSA-1.0+INT+int16"
    large = (rows(0)[0] * 1e4,)
    graph_module = quantize(Lambda(RULES["unit length"]), large, tosa(profile), config=WIDE)
    assert ratio(graph_module, RULES["unit length"], [large]) > 40
    manager, partitioner = lower_safely(graph_module, large, tosa(profile))
    assert partitioner.report.fallbacks == ()
    assert delegated_ratio(manager, RULES["unit length"], [large]) > 55


def test_rows_of_zeros_stay_so():
    assert not ours_exactly(RULES["unit length"], [NONE])(*NONE)[:, 12:].any()


def test_another_maximum_keeps_its_annotation_and_twice_equals_once():
    rule = Lambda(lambda m, x: torch.maximum((x * x).sum(-1, True), torch.tensor([[[0.5]]])) + x)
    model = annotated(rule, quantizer_of(), SAMPLES[0])
    assert annotates_no_more(keep_bounds, model)
    model = annotated(Lambda(RULES["unit length"]), quantizer_of(), SAMPLES[0])
    assert annotates_no_more(keep_bounds, model)
    again = exported(Lambda(RULES["unit length"]), SAMPLES[0])
    assert "maximum" in targets(quantizer_of().transform_for_annotation(again))
