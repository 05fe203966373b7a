"""Two operators alike but for their quantisation domains stay two."""

import copy

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from folding import folded
from lowering import PROFILES, codes_apart, lower, quantize, targets, tosa
from small import Lambda, image, qdq
from stock import stock_lower

from safe_arm import SafeArmPartitioner
from safe_arm._compat import upstream
from safe_arm.passes.fuse_duplicate_users import FuseDuplicateUsersPass

TWO = (*image(), *image(seed=1))
BEYOND = (*image(2, 2.0), *image(3, 2.0))


def twice_tanh(m, x, y):
    h = m.conv(x)
    return h.tanh(), torch.cat([h.tanh(), 4 * y], 1)


def twice_a_sum(m, x, y):
    h = m.conv(x)
    return h + y, torch.cat([h + y, 4 * y], 1)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("function", [twice_tanh, twice_a_sum])
def test_stock_reads_one_s_codes_as_the_other_s(function, profile):
    stock_graph = quantize(Lambda(function), TWO, tosa(profile), quantizer_class=TOSAQuantizer)
    assert codes_apart(stock_lower(stock_graph, TWO, TOSAPartitioner(tosa(profile))), stock_graph, TWO) > 50
    graph_module = quantize(Lambda(function), TWO, tosa(profile))
    partitioner = SafeArmPartitioner(tosa(profile), verify=False)
    manager = lower(graph_module, TWO, partitioner)
    assert codes_apart(manager, graph_module, TWO, BEYOND) == 0
    assert partitioner.report.fallbacks == ()
    assert {each.correction for each in partitioner.report.applied} >= {"domains-apart"}


def test_operators_of_one_domain_are_still_fused():
    def forward(m, x):
        h = qdq(x, 0.01, 3)
        return qdq(torch.cat([qdq(h.tanh(), 0.01, 0), qdq(h.tanh(), 0.01, 0)], 1), 0.01, 0)

    before = folded(Lambda(forward), image())
    fused = targets(upstream.FuseDuplicateUsersPass()(copy.deepcopy(before)).graph_module)
    assert fused.count("tanh") == 1
    assert targets(FuseDuplicateUsersPass()(before).graph_module) == fused


def test_twice_equals_once():
    def forward(m, x):
        h = qdq(x, 0.01, 3)
        return qdq(h.tanh(), 0.01, 0), qdq(h.tanh(), 0.02, 0), qdq(h.tanh(), 0.02, 0)

    once = FuseDuplicateUsersPass()(folded(Lambda(forward), image()))
    assert once.modified
    assert targets(once.graph_module).count("tanh") == 2
    assert not FuseDuplicateUsersPass()(once.graph_module).modified
