"""Squares that are averaged stay exact until their mean is rounded, and the delegate computes it exactly."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from graph_changes import annotated
from lowering import targets
from ratios import exactly_on, for_ethos_u, ours_exactly, ratio, ratio_of_rounded_borders, ratios
from rewriting import Rewriting
from small import Lambda

from safe_arm.quantizer.precision.mean_squares import write_mean_squares


def spiky(seed):
    """Two signals with a few large values: of 8 bits, the squares of all others are 0 or 1."""
    random = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(2, 1, 3, 16, generator=random) ** 3)


SAMPLES = [spiky(seed) for seed in range(12)]
#: By name, a mean or a sum of squares, and how many dB ours is above the borders of each operator.
MEANS = {
    "loss": (lambda m, x, y: F.mse_loss(x, y), -0.1),
    "mean of all": (lambda m, x, y: ((x - y) ** 2).mean(), 10),
    "mean of a dimension": (lambda m, x, y: (x - y).pow(2).mean((0, 2)), 5),
    "sum of all": (lambda m, x, y: F.mse_loss(x, y, reduction="sum"), -0.1),
    "sum of all powers": (lambda m, x, y: ((x - y) ** 2).sum(), 10),
    "sum of powers": (lambda m, x, y: ((x - y) ** 2).sum(-1), 5),
}


def reshaped(x, *shape):
    return (x * x).reshape(*shape).sum([-1], True)


class TestMeanSquares(Rewriting):
    step = staticmethod(write_mean_squares)
    inputs = SAMPLES[0]
    tolerance: ClassVar = {"rtol": 1e-5, "atol": 1e-6}
    written: ClassVar = {
        "a sum of powers": lambda m, x, y: (x**2).sum(-1),
        "a sum of all": lambda m, x, y: (x**2).sum(),
        "a sum of all products": lambda m, x, y: (x * x).sum() * 0.1,
        "a mean of reshaped squares": lambda m, x, y: reshaped(x, 1, 1, 3, 16) * 0.25 + y[..., 0],
        "a sum of reshaped squares": lambda m, x, y: reshaped(x, 1, 1, 3, 16),
        "a mean that is read twice": lambda m, x, y: (lambda v: v + v.sqrt())((x**2).sum(-1) * 0.1),
    }
    kept: ClassVar = {
        "products": lambda m, x, y: (x * x).sum(-1),
        "products of two values": lambda m, x, y: (x * y).reshape(1, 1, 3, 16).sum(-1),
        "a cube": lambda m, x, y: (x**3).sum(-1),
        "powers that are read besides": lambda m, x, y: (lambda p: p.sum(-1) + p.amax(-1))(x**2),
        "a norm": lambda m, x, y: x * ((x**2).sum(-1, keepdim=True) * 0.1 + 1e-3).rsqrt(),
        "squares in another shape": lambda m, x, y: reshaped(x, 1, 1, 6, 8),
        "values of 16 bits": lambda m, x, y: (x.half() ** 2).sum(-1),
        "more terms than fit 32 bits": lambda m, x, y: (x.repeat(720, 1, 1) ** 2).sum(),
    }


@pytest.mark.parametrize(("rule", "gain"), MEANS.values(), ids=MEANS)
def test_stock_rounds_each_square_and_ours_does_not(rule, gain):
    borders, _, ours = ratios(rule, SAMPLES)
    assert ours > borders + gain


@pytest.mark.parametrize("name", MEANS)
def test_the_one_delegate_is_exact(name, profile):
    ours_exactly(MEANS[name][0], SAMPLES[:2], profile)


@pytest.mark.parametrize("name", ["loss", "mean of all"])
def test_an_ethos_u55_computes_the_same(name):
    rule, gain = MEANS[name]
    ours = ratio(exactly_on("ethos-u55-128", rule, SAMPLES), rule, SAMPLES)
    assert ours > ratio_of_rounded_borders(rule, SAMPLES) + gain


def test_an_ethos_u85_leaves_powers_unless_accuracy_is_preferred():
    """By Vela's estimate a small autoencoder takes 19 % more cycles for it."""
    quantizer = for_ethos_u("ethos-u85-256")
    powers = Lambda(MEANS["mean of all"][0])
    assert "pow" in targets(annotated(powers, quantizer, SAMPLES[0]))
    quantizer.prefers_accuracy = True
    assert "pow" not in targets(annotated(powers, quantizer, SAMPLES[0]))
