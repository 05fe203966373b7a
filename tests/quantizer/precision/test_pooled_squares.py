"""The logarithm and the root of pooled squares are as fine as those of a mean of squares."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import WIDE, targets
from ratios import for_ethos_u, ours_exactly, quantised, ratio
from rewriting import Rewriting
from stubborn import quantizer_of

from safe_arm.quantizer.precision.pooled_squares import sum_pooled_squares


def bands(seed):
    """Bands whose loudness differs by 30 dB, each of them longer than high."""
    values = torch.randn(1, 6, 2, 48, generator=torch.Generator().manual_seed(seed))
    return (values * torch.logspace(0, -1.5, 6)[:, None, None],)


SAMPLES = [bands(seed) for seed in range(8)]


def pooled(m, x):
    return F.avg_pool2d(x.square(), (1, 12)).clamp(min=1e-4).log()


def sequence(m, x):
    return F.avg_pool1d(x.flatten(0, 2).square(), 12).add(1e-4).log10()


def columns(m, x):
    return F.avg_pool2d(x.reshape(1, 6, 48, 2) ** 2, (12, 1)).sqrt()


def boxes(m, x):
    return F.avg_pool2d(x.square(), (2, 6)).clamp(1e-6, 1e6).sqrt()


#: By name, a function, what stock keeps of it at most, and ours at least.
FUNCTIONS = {
    "logarithm": (pooled, 12, 30),
    "logarithm of a sequence": (sequence, 20, 30),
    "root of columns": (columns, 30, 40),
    "root of boxes between bounds": (boxes, 30, 40),
}


@pytest.mark.parametrize(("rule", "stock", "ours"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_stock_loses_quiet_bands_and_ours_keeps_them(rule, stock, ours):
    assert ratio(quantised(rule, quantizer_of(TOSAQuantizer), SAMPLES), rule, SAMPLES) < stock
    assert ratio(quantised(rule, quantizer_of(), SAMPLES), rule, SAMPLES) > ours


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_one_delegate_is_exact(name, profile):
    ours_exactly(FUNCTIONS[name][0], SAMPLES, profile)


def test_16_bits_gain_as_well():
    how = {"profile": "TOSA-1.0+INT+int16", "config": WIDE}
    stock = quantised(boxes, quantizer_of(TOSAQuantizer, **how), SAMPLES)
    ours = quantised(boxes, quantizer_of(**how), SAMPLES)
    assert ratio(ours, boxes, SAMPLES) > ratio(stock, boxes, SAMPLES) + 5


def test_an_ethos_u_keeps_the_pool():
    """The sum of each window takes an Ethos-U55 12 % longer, and that of a box an Ethos-U85 five times as long."""
    graph = quantised(pooled, for_ethos_u("ethos-u55-128"), SAMPLES)
    assert "avg_pool2d" in targets(graph)


def pool_of(x, *window, **how):
    return F.avg_pool2d(x * x, *window, **how)


class TestPools(Rewriting):
    step = staticmethod(sum_pooled_squares)
    inputs = SAMPLES[0]
    also = ((torch.zeros(1, 6, 2, 48),),)
    tolerance: ClassVar = {"rtol": 1e-5, "atol": 1e-6}
    gone = ("aten.avg_pool2d",)
    written: ClassVar = {
        "rows": lambda m, x: pool_of(x, (1, 12)).log(),
        "columns": lambda m, x: pool_of(x, (2, 1)).log10(),
        "columns of an image of one": lambda m, x: pool_of(x.view(1, 2, 288, 1), (12, 1)).log(),
        "boxes": lambda m, x: pool_of(x, (2, 4)) ** 0.5,
        "powers": lambda m, x: F.avg_pool2d(x**2, (1, 12)).log(),
        "no batch": lambda m, x: pool_of(x.flatten(1, 2), (1, 12)).log(),
        "squares given a dimension": lambda m, x: (
            F.avg_pool2d((x[:, :, 0] ** 2).unsqueeze(2), (1, 12)).squeeze(2).log()
        ),
        "a part more a number": lambda m, x: (pool_of(x, (1, 12)) * 0.5 + 1e-3).clamp(1e-2).log(),
        "a stride that is said": lambda m, x: pool_of(x, (1, 12), (1, 12)).log(),
        "rounded up where nothing is over": lambda m, x: pool_of(x, (1, 12), ceil_mode=True).log(),
    }
    kept: ClassVar = {
        "windows that overlap": lambda m, x: pool_of(x, (1, 12), (1, 6)).log(),
        "windows apart": lambda m, x: pool_of(x, (1, 12), (1, 24)).log(),
        "a border": lambda m, x: pool_of(x, (1, 12), (1, 12), (0, 6)).log(),
        "a rest": lambda m, x: pool_of(x, (1, 13)).log(),
        "a divisor": lambda m, x: pool_of(x, (1, 12), divisor_override=6).log(),
        "of values": lambda m, x: F.avg_pool2d(x.abs(), (1, 12)).log(),
        "of products": lambda m, x: F.avg_pool2d(x * (x + 1), (1, 12)).exp().log(),
        "of squares that something else reads": lambda m, x: (F.avg_pool2d(s := x * x, (1, 12)).log(), s),
        "of values of 16 bits": lambda m, x: pool_of(x.half(), (1, 12)).log(),
        "no function": lambda m, x: pool_of(x, (1, 12)),
        "another power": lambda m, x: pool_of(x, (1, 12)) ** 2,
        "another function": lambda m, x: pool_of(x, (1, 12)).exp(),
        "the sum with a value": lambda m, x: (pool_of(x, (1, 12)) + x[..., :4] ** 2).log(),
        "what something else reads": lambda m, x: ((p := pool_of(x, (1, 12))), p.log()),
        "more terms than fit 32 bits": lambda m, x: pool_of(x.repeat(1, 1, 1, 720), (2, 34560)).log(),
    }
