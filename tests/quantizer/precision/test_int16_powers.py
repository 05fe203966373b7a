"""Small powers of 16 bits are products, and the delegate computes them exactly."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, annotates_no_more
from lowering import HISTOGRAM, WIDE, codes_apart, lower_safely, stock_codes_apart, targets, tosa
from ratios import delegated_ratio, quantised
from small import Lambda
from stubborn import quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.precision.int16_powers import multiply_int16_powers

PROFILE = "TOSA-1.0+INT+int16"
SAMPLES = [(torch.randn(1, 4, 32, generator=torch.Generator().manual_seed(seed)),) for seed in range(8)]
POWERS = {
    "square": (2, lambda m, x: x.pow(2)),
    "cube": (3, lambda m, x: x.pow(3) * 1.5),
    "fourth power": (4, lambda m, x: x.pow(4) * 1.5),
}
EACH = pytest.mark.parametrize(("exponent", "rule"), POWERS.values(), ids=POWERS)
KEPT = {
    "a fifth power": lambda m, x: x.pow(5),
    "a root": lambda m, x: x.abs().pow(0.5),
    "a fraction": lambda m, x: x.abs().pow(2.5),
}


def of_16_bits(quantizer_class=SafeTOSAQuantizer):
    return quantizer_of(quantizer_class, PROFILE, config=WIDE)


def deviation(m, x):
    """The standard deviation of statistics pooling."""
    return (x.pow(2).mean(2) - x.mean(2).pow(2)).clamp(min=1e-4).sqrt()


@EACH
def test_stock_is_codes_off_and_ours_is_exact(exponent, rule):
    stock = quantised(rule, of_16_bits(TOSAQuantizer), SAMPLES)
    assert stock_codes_apart(stock, SAMPLES[0], tosa(PROFILE), *SAMPLES) >= 1
    ours = quantised(rule, of_16_bits(), SAMPLES)
    assert "pow" not in targets(ours)
    manager, partitioner = lower_safely(ours, SAMPLES[0], tosa(PROFILE))
    assert partitioner.report.fallbacks == ()
    assert codes_apart(manager, ours, *SAMPLES) == 0
    assert delegated_ratio(manager, rule, SAMPLES) > 74


def test_the_deviation_of_a_delegate_is_that_of_the_graph():
    ours = quantised(deviation, of_16_bits(), SAMPLES)
    manager, _ = lower_safely(ours, SAMPLES[0], tosa(PROFILE))
    assert codes_apart(manager, ours, *SAMPLES) <= 3  # The root is read from a table.


@pytest.mark.parametrize("rule", KEPT.values(), ids=KEPT)
def test_other_powers_keep_their_table(rule):
    assert "pow" in targets(annotated(Lambda(rule), of_16_bits(), SAMPLES[0]))


def test_a_power_behind_one_that_keeps_its_table_is_a_product():
    model = annotated(Lambda(lambda m, x: x.pow(5) + x.pow(2)), of_16_bits(), SAMPLES[0])
    assert (targets(model).count("pow"), targets(model).count("mul")) == (1, 1)


@EACH
def test_what_is_not_of_16_bits_keeps_its_table(exponent, rule):
    of_8_bits = quantizer_of(profile=PROFILE, config=HISTOGRAM)
    assert "pow" in targets(annotated(Lambda(rule), of_8_bits, SAMPLES[0]))
    assert "pow" in targets(annotated(Lambda(rule), of_16_bits().set_node_name("pow_1", None), SAMPLES[0]))


@EACH
def test_twice_equals_once(exponent, rule):
    model = annotated(Lambda(rule), of_16_bits(), SAMPLES[0])
    assert targets(model).count("mul") == {2: 1, 3: 3, 4: 3}[exponent]
    assert annotates_no_more(multiply_int16_powers, model)
