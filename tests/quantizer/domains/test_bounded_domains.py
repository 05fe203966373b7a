"""An inverse sine, cosine or hyperbolic tangent has the domain of what it reads, and the delegate is exact."""

from math import isfinite

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, annotates_no_more
from lowering import HISTOGRAM, PROFILES, WIDE, min_max, quantize, targets, tosa
from ratios import ratios
from small import Lambda
from spelled import check_whole
from stubborn import quantizer_of, trainable

from safe_arm.core.island import QParams
from safe_arm.quantizer.domains.bounded_domains import observe_between_bounds

RULES = {"asin": lambda m, x: x.asin(), "acos": lambda m, x: x.acos(), "atanh": lambda m, x: x.atanh()}
#: Ranges of inputs, both ends included.
RANGES = {"to 1": (0.0, 1.0), "from -1": (-1.0, 0.0), "small": (-0.2, 0.3), "uneven": (-1.0, 0.3), "whole": (-1.0, 1.0)}
POSITIVE = (torch.linspace(0, 0.95, 256).view(1, 4, 8, 8),)


def samples(low, high):
    draw = torch.Generator().manual_seed(0)
    return [(low + (high - low) * torch.rand(1, 4, 8, 8, generator=draw),) for _ in range(8)]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_stock_leaves_half_of_the_codes_unused_and_ours_does_not(rule):
    borders, stock, ours = ratios(rule, samples(0, 0.95))
    assert stock < borders - 2
    assert ours > borders - 0.1


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("config", [min_max(), HISTOGRAM], ids=["min-max", "histogram"])
@pytest.mark.parametrize(("low", "high"), RANGES.values(), ids=RANGES)
def test_no_code_is_beyond_the_bounds(low, high, config, rule):
    inputs = (torch.linspace(low, high, 256).view(1, 4, 8, 8),)
    quantised = quantize(Lambda(rule), inputs, tosa(PROFILES[0]), config=config)
    first = next(node for node in quantised.graph.nodes if "quantize_per_tensor" in str(node.target))
    qparams = QParams.of(first)
    codes = torch.arange(-128, 128, dtype=torch.int8)
    values = (codes.to(torch.float32) - qparams.zero_point) * qparams.scale
    assert all(isfinite(value) for value in rule(None, values).tolist())


INNER = {
    "of an input": lambda m, x: x.asin(),
    "of a layer": lambda m, x: (m.conv(x) / 4).sigmoid().acos(),
    "of what others read": lambda m, x: x.atanh() + x,
    "of a view": lambda m, x: x.flatten(2).acos(),
    "of a clamp": lambda m, x: (x * 4 - 2).clamp(-1, 1).asin(),
}


@pytest.mark.parametrize("rule", INNER.values(), ids=INNER)
def test_the_one_delegate_is_exact(rule, profile):
    check_whole(rule, POSITIVE, profile)


def test_what_nobody_else_reads_is_quantised_in_the_same_domain():
    quantised = quantize(Lambda(RULES["acos"]), samples(-1, 1)[0], tosa(PROFILES[0]))
    assert targets(quantised)[:3] == ["quantize_per_tensor", "dequantize_per_tensor", "acos"]


@pytest.mark.parametrize("rule", [RULES["asin"], RULES["atanh"]])
def test_16_bits_are_fine_enough(rule):
    model = annotated(Lambda(rule), quantizer_of(TOSAQuantizer, "TOSA-1.0+INT+int16", config=WIDE), POSITIVE)
    assert annotates_no_more(observe_between_bounds, model)


def test_a_trained_net_keeps_stocks_domain():
    model = trainable(Lambda(RULES["asin"]), POSITIVE)
    assert any(getattr(each, "scale", None) == 2 / 256 for each in model.modules())


def test_the_near_miss_is_left_alone_and_twice_equals_once():
    near, rule = lambda m, x: (x.asinh(), x.atan()), lambda m, x: x.asin() + x
    for model in (
        annotated(Lambda(near), quantizer_of(TOSAQuantizer), POSITIVE),
        annotated(Lambda(rule), quantizer_of(), POSITIVE),
    ):
        assert annotates_no_more(observe_between_bounds, model)
