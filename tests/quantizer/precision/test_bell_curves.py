"""The exponential of a negative square keeps its bits where it is not 0, and the delegate computes it exactly."""

from typing import ClassVar

import pytest
import torch
from lowering import targets
from ratios import histogram_ratios, ours_exactly
from rewriting import Rewriting

from safe_arm.quantizer.precision.bell_curves import write_bell_curves


def wide(seed):
    """Values over four times the width of a bell curve."""
    return (torch.randn(4, 32, generator=torch.Generator().manual_seed(seed)) * 4,)


SAMPLES = [wide(seed) for seed in range(8)]
CENTRES = torch.linspace(-4, 4, 8)
CURVES = {
    "of a power": lambda m, x: torch.exp(-(x**2)),
    "of a square": lambda m, x: torch.exp(-x.square() / 2),
    "around centres": lambda m, x: torch.exp(-(((x[..., None] - CENTRES) / 1.5) ** 2)),
}


class TestBellCurves(Rewriting):
    step = staticmethod(write_bell_curves)
    inputs = wide(0)
    written: ClassVar = {
        "of a power": lambda m, x: torch.exp(-(x**2)),
        "of a part of a power": lambda m, x: torch.exp(x.pow(2) * -0.5),
        "of a part of a square": lambda m, x: torch.exp(-(x * x) * 0.25),
        "of a sum": lambda m, x: torch.exp(-x.pow(2).sum(-1)),
        "of a part of a sum": lambda m, x: torch.exp(-(x * x).sum(-1) * 0.01),
    }
    kept: ClassVar = {
        "of a value": lambda m, x: torch.exp(-x),
        "of 16 bits": lambda m, x: torch.exp(-(x.half() ** 2)),
        "of a cube": lambda m, x: torch.exp(-(x**3)),
        "of a square": lambda m, x: torch.exp(x * x * 0.1),
        "of a product": lambda m, x: torch.exp(-(x * x.flip(-1))),
        "of a square that is read besides": lambda m, x: torch.exp(-(y := x * x)) + y,
        "of a negative square that is read besides": lambda m, x: torch.exp(y := -(x * x)) + y,
        "of a sum of products": lambda m, x: torch.exp(-(x * x.flip(-1)).sum(-1)),
        "of a part of a sum, without a sign": lambda m, x: torch.exp((x * x).sum(-1) * -0.01),
    }


@pytest.mark.parametrize("rule", CURVES.values(), ids=CURVES)
def test_stock_loses_its_bits_and_ours_does_not(rule):
    stock, ours = histogram_ratios(rule, SAMPLES)
    assert stock < 21
    assert ours > stock + 11


@pytest.mark.parametrize("rule", CURVES.values(), ids=CURVES)
def test_the_one_delegate_is_exact(rule, profile):
    assert "pow" not in targets(ours_exactly(rule, SAMPLES, profile))


def test_that_of_a_sum_is_exact():
    names = targets(ours_exactly(lambda m, x: torch.exp(-(x.view(4, 8, 4) / 4).pow(2).sum(-1)), SAMPLES))
    assert "neg" not in names
