"""A flat row beside loud ones keeps what a norm of 16 bits makes of it, and is exact."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, annotates_no_more, wide
from lowering import WIDE, codes_apart, lower_safely, tosa
from ratios import quantised, ratio
from small import Lambda
from stubborn import exported, quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm._compat.release_1_4 import STATES_ARE_CONSTANTS
from safe_arm.quantizer.precision.int16_differences import keep_int16_differences

PROFILE = "TOSA-1.0+INT+int16"
WEIGHT, BIAS = torch.linspace(0.5, 1.5, 8), torch.linspace(-1, 1, 8)


def patches(seed, size=32):
    """Patches of a photograph: flat ones, whose deviation is 8 codes, beside textures, each of its own brightness."""
    draw = torch.Generator().manual_seed(seed)
    spread = torch.logspace(-2.7, -0.7, 8).view(1, 8, 1, 1)[:, torch.randperm(8, generator=draw)]
    brightness = torch.rand(1, 8, 1, 1, generator=draw)
    return (brightness + spread * torch.randn(1, 8, size, size, generator=draw),)


SAMPLES = [patches(seed) for seed in range(4)]
EXTREMES = [(sign * 8 * torch.ones(1, 8, 32, 32).cumsum(-1).remainder(period),) for sign, period in ((1, 2), (-1, 11))]
EXTREMES_OF_ROWS = [(each[:, :3, :8],) for (each,) in EXTREMES]
NORMS = {
    "instances": lambda m, x: F.instance_norm(x),
    "instances with factors": lambda m, x: F.instance_norm(x, weight=WEIGHT, bias=BIAS),
    "groups": lambda m, x: F.group_norm(x, 8, WEIGHT, BIAS),
    "layer": lambda m, x: F.layer_norm(x, (32,)),
}
#: Decibels that rounding in 32 bits may cost; 1.4 passes on a quarter of the values.
MOST_LOST = 5 if STATES_ARE_CONSTANTS else 1
EACH = pytest.mark.parametrize("rule", NORMS.values(), ids=NORMS)


def by(quantizer_class, rule, samples=SAMPLES):
    return quantised(rule, quantizer_of(quantizer_class, PROFILE, config=WIDE), samples)


@pytest.mark.parametrize("name", NORMS)
def test_flat_rows_keep_what_a_float_norm_makes_of_their_codes(name):
    """Stock keeps no norm but that of a layer in 16 bits, and computes an instance norm in floats."""
    rule = NORMS[name]
    # Stock's norm of groups has each channel in one row, of whose squares fewer have 32 bits.
    samples = [patches(seed, 12) for seed in range(4)] if name == "groups" else SAMPLES
    in_floats = by(SafeTOSAQuantizer, lambda m, x: x + 0.0, samples)
    of_borders = ratio(lambda x: rule(None, in_floats(x)), rule, samples)
    assert ratio(by(SafeTOSAQuantizer, rule, samples), rule, samples) > of_borders - MOST_LOST


def test_stock_loses_most_of_a_group_norm():
    assert ratio(by(TOSAQuantizer, NORMS["groups"]), NORMS["groups"], SAMPLES) < 20


@EACH
def test_one_delegate_computes_it_and_no_input_is_too_loud_for_its_32_bits(rule):
    graph_module = by(SafeTOSAQuantizer, rule)
    manager, partitioner = lower_safely(graph_module, SAMPLES[0], tosa(PROFILE))
    assert len(partitioner.report.delegates) == 1
    assert partitioner.report.fallbacks == ()
    # Lines between the 513 codes of a table are a thousandth off, four on 1.4; a product that wraps around is 30,000.
    assert codes_apart(manager, graph_module, *SAMPLES, *EXTREMES) <= 128


def test_rows_that_are_louder_than_all_those_calibrated_do_not_wrap_around():
    """Where all rows are alike, the inverse root has small steps, and its product with a loud difference is largest."""
    rule = NORMS["layer"]
    draw = torch.Generator().manual_seed(0)
    alike = [(torch.rand(1, 3, 8, 32, generator=draw),) for _ in range(4)]
    loud = [(4 * torch.randn(1, 3, 8, 32, generator=draw),) for _ in range(4)]
    graph_module = quantised(rule, quantizer_of(profile=PROFILE, config=WIDE), alike)
    manager, partitioner = lower_safely(graph_module, alike[0], tosa(PROFILE))
    assert partitioner.report.fallbacks == ()
    assert codes_apart(manager, graph_module, *alike, *loud, *EXTREMES_OF_ROWS) <= 100


def root_of(x):
    return ((x - x.mean(-1, True)).square().mean(-1, True) + 1e-3).rsqrt()


def over_own_length(x):
    return x * (x.square().mean(-1, True) + 1e-3).rsqrt()


#: Differences that are read by more than the product with an inverse root, or whose root is not that of their squares.
KEPT = {
    "an output besides": lambda m, x: (x - x.mean(-1, True), F.layer_norm(x, (32,))),
    "a product with another value": lambda m, x: (x - x.mean(-1, True)) * x,
    "the root of another value": lambda m, x: (x - x.mean(-1, True)) * root_of(x.flip(1)),
    "the mean of another value": lambda m, x: (x - x.flip(1).mean(-1, True)) * root_of(x),
    "a mean of other rows": lambda m, x: over_own_length(x - x.flip(1).mean(-1, True)),
    "the mean of another dimension": lambda m, x: (x - x.mean(-2, True)) * root_of(x),
}


@pytest.mark.parametrize("rule", KEPT.values(), ids=KEPT)
def test_the_near_miss_has_16_bits(rule):
    model = annotated(Lambda(rule), quantizer_of(profile=PROFILE, config=WIDE), SAMPLES[0])
    assert "sub" not in wide(model, "sub")


def test_twice_equals_once():
    quantizer = quantizer_of(profile=PROFILE, config=WIDE)
    model = quantizer.transform_for_annotation(exported(Lambda(NORMS["instances"]), SAMPLES[0]))
    once = quantizer.annotate(model)
    assert wide(once, "sub") == ["sub"]
    assert annotates_no_more(keep_int16_differences, once)
