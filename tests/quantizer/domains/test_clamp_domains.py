"""A clamp has a domain of its own, and the delegate computes it exactly."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, annotates_no_more
from lowering import PROFILES, WIDE, min_max, quantize, tosa
from small import Lambda, image, together
from spelled import check_whole
from stubborn import quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.island import QParams
from safe_arm.quantizer.domains.clamp_domains import give_clamps_domains

QUANTIZE_PER_TENSOR = torch.ops.quantized_decomposed.quantize_per_tensor.default
INPUTS = image(gain=4.0)
CLAMPS = {
    "both bounds": lambda m, x: torch.clamp(m.conv(x), -0.03, 0.05),
    "a lower bound": lambda m, x: torch.clamp(m.conv(x), min=1.01),
    "an upper bound": lambda m, x: m.conv(x).clamp_max(-1.01),
    "a hardtanh": lambda m, x: F.hardtanh(m.conv(x) + x, -0.03, 0.05),
    "a relu6 of an input": lambda m, x: F.relu6(x * 9) + x,
    "joined with wider values": lambda m, x: torch.cat((F.hardtanh(m.conv(x), -0.03, 0.05), m.conv_b(x)), 1),
    "chosen beside wider values": lambda m, x: torch.where(x > 0, torch.clamp(m.conv(x), -0.03, 0.05), x * 2),
    "of a pool": lambda m, x: torch.clamp(F.max_pool2d(x, 2), -0.03, 0.05) + 0.1,
    "read by a concatenation": lambda m, x: torch.cat((torch.clamp(x, -0.03, 0.05), x), 1),
    "read by a largest value": lambda m, x: torch.clamp(x, -0.03, 0.05).flatten(2).amax(2),
    "read by a view": lambda m, x: torch.clamp(x, -0.03, 0.05).flatten(2) * 2,
}


def clamped(rule, quantizer_class, config=None):
    return annotated(Lambda(rule), quantizer_of(quantizer_class, config=config), INPUTS)


def worst(rule, quantizer_class):
    """How far a quantised clamp is off at its bounds, relative to the range of its results."""
    expected = rule(Lambda(rule), *INPUTS)
    quantised = quantize(Lambda(rule), INPUTS, tosa(PROFILES[0]), config=min_max(), quantizer_class=quantizer_class)
    at_bounds = (expected == expected.min()) | (expected == expected.max())
    off = (quantised(*INPUTS) - expected)[at_bounds].abs().max()
    return float(off / expected.abs().max())


@pytest.mark.parametrize("name", ["both bounds", "a hardtanh"])
def test_stock_rounds_the_bounds_and_ours_does_not(name):
    rule = CLAMPS[name]
    assert worst(rule, TOSAQuantizer) > 0.1
    assert worst(rule, SafeTOSAQuantizer) < 0.05


@pytest.mark.parametrize("rule", CLAMPS.values(), ids=CLAMPS)
def test_the_one_delegate_is_exact(rule, profile):
    check_whole(rule, INPUTS, profile)


NEAR = {
    "a fused relu6": lambda m, x: F.relu6(m.conv(x)),
    "a hardtanh of what others read": lambda m, x: F.hardtanh(x) + x,
    "relu": lambda m, x: torch.relu(m.conv(x)),
    "a largest value": lambda m, x: x.amax(1),
}


def test_near_misses_are_left_alone():
    assert annotates_no_more(give_clamps_domains, clamped(together(NEAR), TOSAQuantizer))
    # What has its input's domain has one of its own.
    assert not annotates_no_more(give_clamps_domains, clamped(CLAMPS["of a pool"], TOSAQuantizer))


@pytest.mark.parametrize("name", ["joined with wider values", "chosen beside wider values"])
def test_values_in_one_domain_with_a_clamp_are_not_clipped_to_its_bounds(name):
    net = Lambda(CLAMPS[name])
    off = quantize(net, INPUTS, tosa(PROFILES[0]), config=min_max())(*INPUTS) - net(*INPUTS)
    assert float(off.abs().max()) < 0.08


def test_what_only_a_clamp_reads_is_quantised_in_its_domain():
    quantised = quantize(Lambda(CLAMPS["both bounds"]), INPUTS, tosa(PROFILES[0]))
    *_, before, after = quantised.graph.find_nodes(op="call_function", target=QUANTIZE_PER_TENSOR)
    assert QParams.of(before) == QParams.of(after)
    assert QParams.of(before).scale * 255 == pytest.approx(0.08, rel=0.01)


def test_16_bits_are_fine_enough_and_twice_equals_once():
    rule = CLAMPS["both bounds"]
    for model in (clamped(rule, TOSAQuantizer, WIDE), clamped(rule, SafeTOSAQuantizer)):
        assert annotates_no_more(give_clamps_domains, model)
