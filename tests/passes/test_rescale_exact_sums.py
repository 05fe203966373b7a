"""A sum of 32-bit values, and a product of them in another scale, are rescaled to what is promised."""

import pytest
import torch
from executorch.backends.arm.tosa.specification import TosaLoweringContext, TosaSpecification
from folding import changed_once, folded, is_untouched
from lowering import PROFILES, lower_exactly, stock_codes_apart, tosa
from small import DQ, Lambda, Q, image, marked, qdq

from safe_arm.passes.rescale_exact_sums import RescaleExactSumsPass

TWO = (*image(), *image(seed=1))
PRODUCT = 0.013 * 0.017


def wide(value, scale):
    return DQ(Q(value, scale, 0, -(2**31) + 1, 2**31 - 1, torch.int32), scale, 0, -(2**31) + 1, 2**31 - 1, torch.int32)


def net(scale, function=torch.add):
    """A product and a value, added in 32 bits in some scale."""

    def rule(m, x, y):
        x, y = qdq(x, 0.013, 3), qdq(y, 0.017, -5)
        return qdq(function(wide(x * y, scale), wide(y, scale)), 0.031, -7)

    return Lambda(rule)


@pytest.mark.parametrize("function", [torch.add, torch.sub])
@pytest.mark.parametrize("scale", [PRODUCT, 3 * PRODUCT])
def test_stock_takes_the_sum_for_codes_and_ours_is_exact(scale, function):
    graph_module = marked(net(scale, function), TWO)
    assert stock_codes_apart(graph_module, TWO, tosa(PROFILES[0])) > 100
    partitioner = lower_exactly(graph_module, tosa(PROFILES[0]), TWO, (*image(2, 2.0), *image(3, 2.0)))
    assert "exact-sums" in {each.correction for each in partitioner.report.applied}


def test_the_near_miss_is_left_alone_and_twice_is_once():
    eight_bits = Lambda(lambda m, x, y: qdq(qdq(x, 0.013, 3) + qdq(y, 0.017, -5), 0.031, -7))
    assert is_untouched(RescaleExactSumsPass, folded(eight_bits, TWO))
    with TosaLoweringContext(TosaSpecification.create_from_string(PROFILES[0])):
        assert "RESCALE" in str(changed_once(RescaleExactSumsPass, folded(net(PRODUCT), TWO)))
