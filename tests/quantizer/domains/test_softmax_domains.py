"""Masked scores and their distances to a maximum keep the scale of the scores."""

import math

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import HISTOGRAM, PROFILES, WIDE, quantize, tosa
from masked import Masked, additive, off, scores
from small import Built, Lambda
from stubborn import calibrated, exported, quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.island import QParams

_ATEN = torch.ops.aten
SOFTMAX = Lambda(lambda m, x: (x * 1.0).softmax(-1))
INPUTS = (scores(),)


def domain_of(quantised, target, which=0):
    node = quantised.graph.find_nodes(op="call_function", target=target)[which]
    return QParams.of(next(iter(node.users)))


def test_stock_rounds_distances_again():
    quantised = quantize(SOFTMAX, INPUTS, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    assert domain_of(quantised, _ATEN.sub.Tensor).scale != domain_of(quantised, _ATEN.amax.default).scale


def test_distances_are_whole_steps_of_the_scores(profile):
    quantised = quantize(SOFTMAX, INPUTS, tosa(profile))
    before, distance = domain_of(quantised, _ATEN.mul.Tensor), domain_of(quantised, _ATEN.sub.Tensor)
    assert domain_of(quantised, _ATEN.amax.default) == before
    assert (distance.scale, distance.zero_point) == (before.scale, 127)


def in_16_bits(rule, x):
    return quantize(Lambda(rule), (x,), tosa("TOSA-1.0+INT+int16"), config=WIDE)


def steps_of_distances(rule, x):
    """The step of distances to a maximum in 16 bits as a multiple of that of the scores, and that itself."""
    quantised = in_16_bits(rule, x)
    step = domain_of(quantised, _ATEN.sub.Tensor).scale
    return step / domain_of(quantised, _ATEN.amax.default).scale, step


def test_distances_of_a_symmetric_domain_have_twice_the_step():
    assert steps_of_distances(lambda m, x: x.softmax(-1), INPUTS[0].clamp(-0.3, 0.3))[0] == pytest.approx(2)


def test_distances_of_16_bits_end_where_the_exponential_is_less_than_half_a_code():
    """An exponential of a domain of 160 is read from lines between exponents 0.6 apart."""
    ratio, step = steps_of_distances(lambda m, x: x.softmax(-1), INPUTS[0] * 20)
    assert ratio < 1
    assert 11 < step * 32767 < 12
    assert math.exp(-step * 32767) * 32767 < 0.5


def test_distances_of_16_bits_that_something_else_reads_do_not_end_there():
    ratio, _ = steps_of_distances(lambda m, x: (lambda d: d.exp() + d)(x - x.amax(-1, True)), INPUTS[0] * 20)
    assert ratio == pytest.approx(2)


def test_masked_scores_keep_the_domain_of_the_scores():
    net = Masked(lambda m, x: (x * 1.0 + m.low).softmax(-1)).eval()
    quantised = quantize(net, INPUTS, tosa(PROFILES[0]))
    operators = (_ATEN.mul.Tensor, _ATEN.minimum.default, _ATEN.amax.default)
    assert len({domain_of(quantised, operator) for operator in operators}) == 1


@pytest.mark.parametrize("bias", [0.0, 3.0])
def test_scores_with_a_mask_that_is_added_reach_as_far_as_it_does(bias):
    net = Masked(lambda m, x, mask: (x * 1.0 + mask).softmax(-1)).eval()
    mask = additive(-1e4) + bias
    quantised = quantize(net, (scores(), mask), tosa(PROFILES[0]))
    before, after = domain_of(quantised, _ATEN.mul.Tensor), domain_of(quantised, _ATEN.amax.default)
    reach = 255 * before.scale + (bias + 0.0)
    assert after.scale == pytest.approx(reach / 255)
    assert (after == before) == (bias == 0)


def test_what_is_kept_has_codes_whatever_was_calibrated():
    net = Masked(lambda m, x, keep: (x * 1.0).masked_fill(~keep, -1e4).softmax(-1)).eval()
    quantised = quantize(net, (scores(), torch.ones(2, 1, 1, 12, dtype=torch.bool)), tosa(PROFILES[0]))
    for target in (_ATEN.where.self, _ATEN.amax.default):
        domain = domain_of(quantised, target, 1)
        assert (domain.scale, domain.zero_point) == (pytest.approx(1 / 255), -128)


def test_numbers_chosen_by_a_condition_that_masks_nothing_are_observed():
    net = Lambda(lambda m, x: torch.maximum(torch.where(x > 0, torch.ones(1), torch.zeros(1)), x * 9.0))
    assert domain_of(quantize(net, INPUTS, tosa(PROFILES[0])), _ATEN.maximum.default).scale > 9 / 255


@pytest.mark.parametrize(
    "rule",
    [
        lambda m, x: (x * 1.0) - (x * 2.0).amax(-1, True),
        lambda m, x: (x * 1.0).amax(-1, True) - (x * 1.0),
        lambda m, x: torch.minimum(x * 1.0, torch.full((12,), 1e20)),
    ],
)
def test_the_near_miss_is_left_alone(rule):
    qparams = []
    for quantizer_class in (SafeTOSAQuantizer, TOSAQuantizer):
        quantised = quantize(Lambda(rule), INPUTS, tosa(PROFILES[0]), quantizer_class=quantizer_class)
        (output,) = quantised.graph.output_node().all_input_nodes
        qparams.append(QParams.of(output))
    assert qparams[0] == qparams[1]


@pytest.mark.filterwarnings("ignore:.*stay float")
def test_a_mask_that_float_operators_read_too_masks_those_that_are_quantised():
    quantizer = quantizer_of(config=HISTOGRAM)
    quantizer.set_module_name("first", None)
    inputs = (scores(), additive(-1e4))
    first, second = (Lambda(lambda m, x, mask: (x * 1.0 + mask).softmax(-1)) for _ in range(2))
    net = Built(lambda m, *inputs: m.first(*inputs) + m.second(*inputs), first=first, second=second).eval()
    quantised = calibrated(exported(net, inputs), quantizer, [inputs])
    assert off(quantised(*inputs), net(*inputs)) <= 20
