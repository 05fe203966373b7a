"""A sum of squares between two bounds has as fine a root and a logarithm as one with a lower bound."""

import math
from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import WIDE, targets
from ratios import for_ethos_u, ours_exactly, quantised, ratio
from rewriting import Rewriting
from stubborn import quantizer_of

from safe_arm.quantizer.precision.bounds_behind import bound_lengths_behind, bound_logs_behind

RSQRT = torch.ops.aten.rsqrt.default


def rows(seed):
    """Rows whose loudness differs by 30 dB."""
    values = torch.randn(1, 12, 32, generator=torch.Generator().manual_seed(seed))
    return (values * torch.logspace(0, -1.5, 12)[:, None],)


SAMPLES = [rows(seed) for seed in range(8)]


def energy(m, x):
    return x.square().mean(-1).clamp(1e-4, 1e6).log()


def capped(m, x):
    return x.square().mean(-1).clamp(1e-4, 0.25).log10()


def deviation(m, x):
    return x.var(-1).clamp(1e-6, 1e6).sqrt()


def short(m, x):
    return x.square().mean(-1).clamp(1e-6, 0.25).sqrt()


#: By name, a function, what stock keeps of it at most, and ours at least.
FUNCTIONS = {
    "logarithm": (energy, 27, 36),
    "logarithm of what is capped": (capped, 28, 36),
    "root": (deviation, 30, 42),
    "root of what is capped": (short, 28, 38),
}


def roots(graph_module):
    return len(graph_module.graph.find_nodes(op="call_function", target=RSQRT))


@pytest.mark.parametrize(("rule", "stock", "ours"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_stock_loses_quiet_values_and_ours_keeps_them(rule, stock, ours):
    assert ratio(quantised(rule, quantizer_of(TOSAQuantizer), SAMPLES), rule, SAMPLES) < stock
    assert ratio(quantised(rule, quantizer_of(), SAMPLES), rule, SAMPLES) > ours


@pytest.mark.parametrize("rule", [capped, short])
def test_the_one_delegate_is_exact(rule, profile):
    ours_exactly(rule, SAMPLES, profile)


def test_16_bits_have_steps_enough_for_a_logarithm_and_a_finer_root():
    quantizer = quantizer_of(profile="TOSA-1.0+INT+int16", config=WIDE)
    names = targets(quantised(capped, quantizer, SAMPLES))
    assert names.index("clamp") < names.index("log10")
    assert ratio(quantised(short, quantizer, SAMPLES), short, SAMPLES) > 55


@pytest.mark.parametrize("rule", [energy, short])
def test_an_ethos_u_computes_it_in_one_step(rule):
    assert roots(quantised(rule, for_ethos_u("ethos-u55-128"), SAMPLES)) == 0


def behind(model):
    bound_lengths_behind(model)
    bound_logs_behind(model)


class TestBounds(Rewriting):
    step = staticmethod(behind)
    inputs = (rows(0)[0],)
    silence = torch.zeros(1, 12, 32)
    also = ((silence,), (silence * math.nan,), (silence + math.inf,), (silence + 100,))
    tolerance: ClassVar = {"equal_nan": True}
    written: ClassVar = {
        "a logarithm": lambda m, x: (x * x).sum(-1).clamp(1e-4, 2.0).log(),
        "a logarithm to the base of 10": lambda m, x: (x * x).sum(-1).clamp(1e-4, 2.0).log10(),
        "a root": lambda m, x: (x * x).sum(-1).clamp(1e-4, 2.0) ** 0.5,
        "an upper bound alone": lambda m, x: (x * x).sum(-1).clamp(max=2.0).log(),
        "a lower bound of 0": lambda m, x: (x * x).sum(-1).clamp(0, 2).log(),
        "a lower bound above the upper one": lambda m, x: (x * x).sum(-1).clamp(3.0, 2.0) ** 0.5,
        "bounds by name": lambda m, x: torch.clamp((x * x).sum(-1), min=1e-4, max=2.0).log(),
        "of a share more a number": lambda m, x: ((x * x).sum(-1) * 0.5 + 1e-4).clamp(1e-3, 2.0).log(),
        "of the squares of two": lambda m, x: (x[..., :9] ** 2 + x[..., 9:18] ** 2).clamp(1e-4, 2.0) ** 0.5,
        "bounds that something else reads": lambda m, x: ((c := (x * x).sum(-1).clamp(1e-4, 2.0)), c.log()),
    }
    kept: ClassVar = {
        "a lower bound alone": lambda m, x: (x * x).sum(-1).clamp(1e-4).log(),
        "of any value": lambda m, x: x.sum(-1).clamp(1e-4, 2.0).log(),
        "an upper bound of 0": lambda m, x: (x * x).sum(-1).clamp(max=0.0).log(),
        "an upper bound that is 0 in 32 bits": lambda m, x: (x * x).sum(-1).clamp(max=1e-50).log(),
        "no end": lambda m, x: (x * x).sum(-1).clamp(1e-4, math.inf).log(),
        "a square": lambda m, x: (x * x).sum(-1).clamp(1e-4, 2.0) ** 2,
        "an inverse root": lambda m, x: (x * x).sum(-1).clamp(1e-4, 2.0).rsqrt(),
    }
