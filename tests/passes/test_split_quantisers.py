"""A value that is quantised to two domains is computed once for each."""

import pytest
import torch
import torch.nn.functional as F
from folding import changed_once, is_untouched
from lowering import PROFILES, by_stock, codes_apart, edge_program, lower_exactly, tosa
from small import DQ, Lambda, image, marked, qdq

from safe_arm.core.exceptions import attempted
from safe_arm.passes.split_quantisers import SplitQuantisersPass

IN, ONE, OTHER = (0.01, 3), (0.0193, 0), (0.0313, 5)
BEYOND = image(1, 2.0)


def conv(m, x):
    return F.conv2d(qdq(x, *IN), DQ(m.codes, 0.01, 0, -127, 127, torch.int8), padding=1)


#: What stock does on 1.5.1: another value for each quantiser, or a crash.
OPERATORS = {
    "relu": (lambda m, x: F.relu(qdq(x, *IN)), "wrong"),
    "add": (lambda m, x: qdq(x, *IN) + qdq(x, *IN), "AssertionError"),
    "sigmoid": (lambda m, x: qdq(x, *IN).sigmoid(), "exactly one output quantization parameter"),
    "permute": (lambda m, x: qdq(F.relu(qdq(x, *IN)), *IN).permute(0, 2, 3, 1), "wrong"),
}


def quantised_twice(function, *domains):
    def forward(m, x):
        value = function(m, x)
        return tuple(qdq(value, *domain) for domain in domains)

    net = Lambda(forward)
    net.register_buffer("codes", torch.randint(-127, 128, (4, 4, 3, 3), dtype=torch.int8))
    return marked(net, image())


@pytest.mark.parametrize("name", OPERATORS)
def test_stock_has_one_domain_and_ours_both(name, profile):
    function, stock = OPERATORS[name]
    graph_module = quantised_twice(function, ONE, OTHER)
    if stock == "wrong":
        manager = by_stock(graph_module, image(), tosa(profile))
        assert codes_apart(manager, graph_module, image()) > 20
    else:
        raised = attempted(by_stock, graph_module, image(), tosa(profile))
        assert any(stock in repr(cause) for cause in raised.causes)
    partitioner = lower_exactly(graph_module, tosa(profile), image(), BEYOND, verify=False)
    assert {each.correction for each in partitioner.report.applied} >= {"one-quantiser"}


def test_what_is_computed_in_floats_before_is_copied_too():
    """In INT the stock partitioner does not take such a convolution."""
    graph_module = quantised_twice(lambda m, x: F.relu(conv(m, x)), ONE, OTHER)
    lower_exactly(graph_module, tosa(PROFILES[1]), image(), BEYOND, non_fuseable="propagate", verify=False)


def in_two_domains_and_read(m, x):
    value = F.relu(qdq(x, *IN))
    return value, qdq(value, *ONE), qdq(value, *OTHER)


@pytest.mark.parametrize(
    "graph_module",
    [quantised_twice(OPERATORS["add"][0], ONE), marked(Lambda(in_two_domains_and_read), image())],
    ids=["one quantiser", "a reader that takes the float"],
)
def test_near_misses_are_left_alone(graph_module):
    assert is_untouched(SplitQuantisersPass, edge_program(graph_module, image()).graph_module)


def test_two_quantisers_of_one_domain_become_one():
    """Of these stock crashes on the sum; the domain of the second does not differ, but there are two."""
    graph_module = quantised_twice(OPERATORS["add"][0], ONE, OTHER, ONE, OTHER)
    lower_exactly(graph_module, tosa(PROFILES[0]), image(), BEYOND, verify=False)
    once = changed_once(SplitQuantisersPass, edge_program(graph_module, image()).graph_module)
    assert once.count("add") == 2
    assert once.count("quantize_per_tensor") == 2 + 2
