"""Integers are divided as integers on an Ethos-U55, which has no division of them."""

import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import EthosUQuantizer
from graph_changes import graph_of
from lowering import PROFILES, lower_safely, min_max, quantize, tosa
from small import Lambda

from safe_arm import SafeEthosUQuantizer
from safe_arm.quantizer.spellings.integer_divisions import divisions_of_integers

NUMERATORS = torch.arange(-50, 50, dtype=torch.int32)
DIVISORS = 1 + NUMERATORS.remainder(8)
INPUTS = (NUMERATORS, DIVISORS, torch.linspace(-3, 3, 100))
DIVIDED = {
    "floor by a number": lambda m, a, b, x: a // 3,
    "floor by a tensor": lambda m, a, b, x: a // b,
    "a number by a tensor": lambda m, a, b, x: 100 // b,
    "truncated by a number": lambda m, a, b, x: torch.div(a, 3, rounding_mode="trunc"),
    "truncated by a tensor": lambda m, a, b, x: torch.div(a, b, rounding_mode="trunc"),
    "remainder": lambda m, a, b, x: a % b,
    "in place": lambda m, a, b, x: (a + 1).div_(3, rounding_mode="floor"),
    "bytes": lambda m, a, b, x: a.abs().to(torch.uint8) // 2,
    "int64": lambda m, a, b, x: a.long() // 7,
}
#: Stock leaves a division in place as it is, and raises on a number that is divided.
WRONG = [name for name in DIVIDED if name not in ("in place", "a number by a tensor")]
OTHERS = {
    "floats": lambda m, a, b, x: x // 3,
    "a true quotient": lambda m, a, b, x: a / 3,
    "a remainder that passes keep": lambda m, a, b, x: a % 4,
    "fmod": lambda m, a, b, x: torch.fmod(a, b),
}


def quantised(rule, quantizer_class=SafeEthosUQuantizer, target="ethos-u55-128"):
    spec = EthosUCompileSpec(target)
    return quantize(Lambda(rule), INPUTS, spec, quantizer_class=quantizer_class, config=min_max())


def wrong(rule, graph_module):
    """How many integers of a quantised graph are wrong."""
    return int((graph_module(*INPUTS) != rule(None, *INPUTS)).sum())


@pytest.mark.parametrize("name", WRONG)
def test_stock_divides_them_as_quantised_floats(name):
    assert wrong(DIVIDED[name], quantised(DIVIDED[name], EthosUQuantizer)) > 0


@pytest.mark.parametrize("name", DIVIDED)
def test_ours_divides_them_as_they_are(name):
    assert wrong(DIVIDED[name], quantised(DIVIDED[name])) == 0


def test_each_of_several_outputs_is_right():
    net = Lambda(lambda m, a, b, x: (a // 3, x.relu(), a % b, torch.div(a, b, rounding_mode="trunc")))
    graph_module = quantize(net, INPUTS, EthosUCompileSpec("ethos-u55-128"), quantizer_class=SafeEthosUQuantizer)
    expected, given = net(*INPUTS), graph_module(*INPUTS)
    assert all(torch.equal(given[index], expected[index]) for index in (0, 2, 3))
    assert float((given[1] - expected[1]).abs().max()) < 0.02


def test_a_lowering_leaves_them_to_the_cpu_with_a_reason():
    graph_module = quantised(DIVIDED["floor by a number"])
    with pytest.warns(match="demoted from"):
        _, partitioner = lower_safely(graph_module, INPUTS, EthosUCompileSpec("ethos-u55-128"))
    assert [each.op for each in partitioner.report.fallbacks] == ["aten::div"]
    assert all(each.reasons for each in partitioner.report.fallbacks)


@pytest.mark.parametrize("name", OTHERS)
def test_other_divisions_are_left_alone(name):
    assert divisions_of_integers(graph_of(OTHERS[name], *INPUTS)) == {}


@pytest.mark.parametrize("name", ["floor by a number", "remainder"])
def test_targets_that_divide_integers_are_left_alone(name):
    u85 = quantised(DIVIDED[name], target="ethos-u85-256")
    assert wrong(DIVIDED[name], u85) == 0
    plain = quantize(Lambda(DIVIDED[name]), INPUTS, tosa(PROFILES[0]), config=min_max())
    assert wrong(DIVIDED[name], plain) == 0


def test_a_division_is_told_each_time():
    model = graph_of(DIVIDED["floor by a number"], *INPUTS)
    assert list(divisions_of_integers(model)) == list(divisions_of_integers(model)) == ["floor_divide"]
