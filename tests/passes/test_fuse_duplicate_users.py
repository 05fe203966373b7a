"""Two operators alike but for their quantisation domains stay two."""

import copy

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from folding import changed_once, folded
from lowering import lower_exactly, quantize, stock_codes_apart, targets, tosa
from small import Lambda, image, qdq

from safe_arm import CORRECTIONS
from safe_arm._compat import upstream
from safe_arm.core.lowering_record import Lowering, lowering
from safe_arm.passes.applied import CORRECTION
from safe_arm.passes.fuse_duplicate_users import FuseDuplicateUsersPass

TWO = (*image(), *image(seed=1))
BEYOND = (*image(2, 2.0), *image(3, 2.0))


def twice(operator):
    """An operator in two domains: one of its own, and one that it shares."""

    def forward(m, x, y):
        h = m.conv(x)
        return operator(h, y), torch.cat([operator(h, y), 4 * y], 1)

    return Lambda(forward)


@pytest.mark.parametrize("operator", [lambda h, y: h.tanh(), torch.add], ids=["twice_tanh", "twice_a_sum"])
def test_stock_reads_one_s_codes_as_the_other_s(operator, profile):
    stock_graph = quantize(twice(operator), TWO, tosa(profile), quantizer_class=TOSAQuantizer)
    assert stock_codes_apart(stock_graph, TWO, tosa(profile)) > 50
    graph_module = quantize(twice(operator), TWO, tosa(profile))
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

    assert changed_once(FuseDuplicateUsersPass, folded(Lambda(forward), image())).count("tanh") == 2


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
