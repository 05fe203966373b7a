"""Two operators alike but for their quantisation domains stay two."""

import copy

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from folding import folded
from lowering import PROFILES, codes_apart, lower_exactly, quantize, targets, tosa
from small import Lambda, image, qdq
from stock import stock_lower

from safe_arm import CORRECTIONS
from safe_arm._compat import upstream
from safe_arm.core.lowering_record import Lowering, lowering
from safe_arm.passes.applied import CORRECTION
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
    partitioner = lower_exactly(graph_module, tosa(profile), TWO, BEYOND, verify=False)
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


def test_a_difference_is_noted_where_domains_differ_and_nowhere_else():
    def notes(scale):
        h = lambda x: qdq(x, 0.01, 3)  # noqa: E731
        graph_module = folded(Lambda(lambda m, x: (qdq(h(x).tanh(), 0.01, 0), qdq(h(x).tanh(), scale, 0))), image())
        ours = FuseDuplicateUsersPass()
        setattr(ours, CORRECTION, next(each for each in CORRECTIONS if each.name == "domains-apart"))
        with lowering(Lowering()) as record:
            ours(graph_module)
        return {name for name, *_ in record.notes}

    assert notes(0.01) == set()
    assert notes(0.02) == {"domains-apart"}
