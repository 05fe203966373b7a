"""A negated value has the mirrored domain."""

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import HISTOGRAM, PROFILES, WIDE, lower_exactly, quantize, tosa
from small import Lambda

from safe_arm.core.island import QParams

INPUTS = (torch.randn(8, 96, generator=torch.Generator().manual_seed(0)).exp(),)
NET = Lambda(lambda m, x: -(x * 1.0))


def domains(quantised):
    (negative,) = quantised.graph.find_nodes(op="call_function", target=torch.ops.aten.neg.default)
    (result,) = negative.users
    return QParams.of(negative.args[0]), QParams.of(result)


def test_stock_rounds_a_negative_again():
    quantised = quantize(NET, INPUTS, tosa(PROFILES[0]), config=HISTOGRAM, quantizer_class=TOSAQuantizer)
    before, after = domains(quantised)
    assert (after.scale, after.zero_point) != (before.scale, -1 - before.zero_point)


def check_mirrored(before, after):
    assert after.scale == before.scale
    assert after.zero_point == -1 - before.zero_point


def test_ours_mirrors_each_code(profile):
    quantised = quantize(NET, INPUTS, tosa(profile), config=HISTOGRAM)
    check_mirrored(*domains(quantised))
    lower_exactly(quantised, tosa(profile), INPUTS)


def test_a_symmetric_domain_is_its_own_mirror_and_twice_a_negative_is_the_value():
    before, after = domains(quantize(NET, INPUTS, tosa("TOSA-1.0+INT+int16"), config=WIDE))
    assert before == after
    quantised = quantize(Lambda(lambda m, x: (x * 1.0).neg().neg()), INPUTS, tosa(PROFILES[0]))
    negatives = quantised.graph.find_nodes(op="call_function", target=torch.ops.aten.neg.default)
    check_mirrored(*(QParams.of(next(iter(node.users))) for node in negatives))
