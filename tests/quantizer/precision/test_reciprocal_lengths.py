"""The reciprocal of a length that is read besides has the bits of two steps, and the delegate computes it exactly."""

from typing import ClassVar

import pytest
import torch
from lowering import PROFILES, WIDE, targets
from ratios import exactly_on, histogram_ratios, ours_exactly, quantised, ratio
from rewriting import Rewriting
from stubborn import quantizer_of

from safe_arm.quantizer.precision.fine_lengths import refine_lengths
from safe_arm.quantizer.precision.reciprocal_lengths import share_first_steps


def spectrum(seed):
    """Real and imaginary parts."""
    return (torch.randn(1, 2, 16, 6, generator=torch.Generator().manual_seed(seed)),)


def length(x):
    return (x[:, :1] ** 2 + x[:, 1:] ** 2 + 1e-6) ** 0.5


def polar_mask(m, x):
    size = length(x)
    return x[:, :1] / size * size.tanh()


def both_parts(m, x):
    size = length(x)
    return torch.cat([x[:, :1] / size, x[:, 1:] / size], 1) * size.sigmoid()


def of_one_sum(m, x):
    size = (x * x).sum(1, keepdim=True).sqrt()
    return x[:, :1] / size * size.tanh()


def direction_and_length(m, x):
    size = x.norm(dim=-1, keepdim=True)
    return x / size + size


SAMPLES = [spectrum(seed) for seed in range(8)]
MASKS = {"one part": polar_mask, "both parts": both_parts, "one sum": of_one_sum}
EACH = pytest.mark.parametrize("rule", MASKS.values(), ids=MASKS)


def in_two_steps(model):
    refine_lengths(model)
    share_first_steps(model)


class TestReciprocals(Rewriting):
    step = staticmethod(in_two_steps)
    inputs = spectrum(0)
    gone = ("reciprocal",)
    written: ClassVar = {
        "of squares that are added": lambda m, x: x[:, :1] * (s := length(x)).reciprocal() + s,
        "of one sum": lambda m, x: x[:, :1] * (s := (x * x).sum(1, keepdim=True) ** 0.5).reciprocal() + s,
    }
    kept: ClassVar = {
        "of a value": lambda m, x: x * (s := x.exp()).reciprocal() + s,
        "of another root": lambda m, x: x * (s := x.exp() ** 0.5).reciprocal() + s,
    }


def test_a_reciprocal_that_is_no_factor_stays():
    names = targets(ours_exactly(lambda m, x: (s := length(x)) + s.reciprocal(), SAMPLES[:2], PROFILES[0]))
    assert "reciprocal" in names


@EACH
def test_stock_loses_what_is_divided_by_short_vectors_and_ours_does_not(rule):
    stock, ours = histogram_ratios(rule, SAMPLES)
    assert stock < 25
    assert ours > stock + 10


@EACH
def test_the_one_delegate_is_exact(rule, profile):
    names = targets(ours_exactly(rule, SAMPLES[:2], profile))
    assert names.count("rsqrt") == 3
    assert "reciprocal" not in names


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_an_ethos_u_takes_the_first_step_alone(target):
    names = targets(exactly_on(target, polar_mask, SAMPLES[:2]))
    assert names.count("rsqrt") == 2
    assert "reciprocal" not in names


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_of_rows_an_ethos_u_takes_both_steps(target):
    names = targets(exactly_on(target, direction_and_length, SAMPLES[:2]))
    assert names.count("rsqrt") == 3


def test_16_bits_keep_their_own_reciprocal():
    quantizer = quantizer_of(profile="TOSA-1.0+INT+int16", config=WIDE)
    assert "reciprocal" in targets(quantised(polar_mask, quantizer, SAMPLES[:2]))


@pytest.mark.parametrize(("name", "decibels"), [("pow_3", 20), ("tanh", 35), ("div", 35)])
def test_of_an_operator_that_stays_float_no_step_is_left_out(name, decibels):
    """What is not of 8 bits is undone, and what it shares with others stays."""
    quantizer = quantizer_of(profile=PROFILES[1])
    quantizer.set_node_name(name, None)
    graph_module = quantised(polar_mask, quantizer, SAMPLES[:4])
    assert not [each for each in quantizer.left_float if "is left out" in each.reason]
    assert targets(graph_module).count("pow") == (name == "pow_3")
    assert ratio(graph_module, polar_mask, SAMPLES[:4]) > decibels
