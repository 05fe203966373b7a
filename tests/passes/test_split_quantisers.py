"""A value that is quantised to two domains is computed once for each."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, codes_apart, edge_program, lower_exactly, targets, tosa
from small import DQ, Lambda, image, mark_quantised, qdq
from stock import stock_lower

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
    return mark_quantised(torch.export.export(net, image()).module())


def chain(error):
    while error is not None:
        yield f"{type(error).__name__}: {error}"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", OPERATORS)
def test_stock_has_one_domain_and_ours_both(name, profile):
    function, stock = OPERATORS[name]
    graph_module = quantised_twice(function, ONE, OTHER)
    if stock == "wrong":
        manager = stock_lower(graph_module, image(), TOSAPartitioner(tosa(profile)))
        assert codes_apart(manager, graph_module, image()) > 20
    else:
        with pytest.raises(Exception) as raised:
            stock_lower(graph_module, image(), TOSAPartitioner(tosa(profile)))
        assert any(stock in text for text in chain(raised.value))
    partitioner = lower_exactly(graph_module, tosa(profile), image(), BEYOND, verify=False)
    assert {each.correction for each in partitioner.report.applied} >= {"one-quantiser"}


def test_what_is_computed_in_floats_before_is_copied_too():
    """In INT the stock partitioner does not take such a convolution."""
    graph_module = quantised_twice(lambda m, x: F.relu(conv(m, x)), ONE, OTHER)
    lower_exactly(graph_module, tosa(PROFILES[1]), image(), BEYOND, non_fuseable="propagate", verify=False)


def passed(graph_module):
    program = edge_program(graph_module, image())
    return targets(program.graph_module), SplitQuantisersPass()(program.graph_module)


@pytest.mark.parametrize(
    "graph_module",
    [
        pytest.param(quantised_twice(OPERATORS["add"][0], ONE), id="one quantiser"),
        pytest.param(
            mark_quantised(
                torch.export.export(
                    Lambda(lambda m, x: (lambda r: (r, qdq(r, *ONE), qdq(r, *OTHER)))(F.relu(qdq(x, *IN)))), image()
                ).module()
            ),
            id="a reader that takes the float",
        ),
    ],
)
def test_near_misses_are_left_alone(graph_module):
    before, result = passed(graph_module)
    assert not result.modified
    assert targets(result.graph_module) == before


def test_two_quantisers_of_one_domain_become_one():
    """Of these stock crashes on the sum; the domain of the second does not differ, but there are two."""
    graph_module = quantised_twice(OPERATORS["add"][0], ONE, OTHER, ONE, OTHER)
    lower_exactly(graph_module, tosa(PROFILES[0]), image(), BEYOND, verify=False)
    _, once = passed(graph_module)
    assert targets(once.graph_module).count("add") == 2
    assert targets(once.graph_module).count("quantize_per_tensor") == 2 + 2


def test_twice_equals_once():
    _, once = passed(quantised_twice(lambda m, x: F.relu(conv(m, x)), ONE, OTHER))
    assert once.modified
    assert targets(once.graph_module).count("convolution") == 2
    assert not SplitQuantisersPass()(once.graph_module).modified
