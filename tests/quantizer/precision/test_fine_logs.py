"""The logarithm of a sum of squares keeps quiet values, and the delegate computes it exactly."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import quantised_whole
from lowering import WIDE
from ratios import for_ethos_u, ours_exactly, quantised, ratio
from rewriting import Rewriting
from small import Lambda
from stubborn import quantizer_of

from safe_arm.quantizer.precision.fine_logs import refine_logs

RSQRT = torch.ops.aten.rsqrt.default


def rows(seed):
    """Rows whose loudness differs by 30 dB."""
    values = torch.randn(1, 12, 32, generator=torch.Generator().manual_seed(seed))
    return (values * torch.logspace(0, -1.5, 12)[:, None],)


SAMPLES = [rows(seed) for seed in range(8)]


def energy(m, x):
    return torch.log(x.square().sum(-1) + 1e-4)


def spectrum(m, x):
    real, imaginary = x.chunk(2, -1)
    return torch.log(real.square() + imaginary.square() + 1e-3)


def unbounded(m, x):
    return (x * x).sum(-1, keepdim=True).log()


def loudness(m, x):
    return 10 * torch.log10(x.square().mean(-1) + 1e-5)


def bounded(m, x):
    return (x**2).mean(-1).clamp(min=1e-4).log()


#: By name, a logarithm, what stock keeps of it at most, and ours at least.
LOGARITHMS = {
    "energy": (energy, 15, 30),
    "spectrum": (spectrum, 15, 18),
    "unbounded": (unbounded, 15, 30),
    "of a mean in decibels": (loudness, 27, 35),
    "of a mean with a bound": (bounded, 27, 36),
    "of a square": (lambda m, x: torch.log(x**2 + 1e-3), 15, 30),
    "of a half to the base of 2": (lambda m, x: torch.log2(0.5 * (x * x).sum(-1) + 1e-3), 20, 30),
}


def roots(graph_module):
    return len(graph_module.graph.find_nodes(op="call_function", target=RSQRT))


@pytest.mark.parametrize(("rule", "stock", "ours"), LOGARITHMS.values(), ids=LOGARITHMS)
def test_stock_loses_quiet_values_and_ours_keeps_them(rule, stock, ours):
    assert ratio(quantised(rule, quantizer_of(TOSAQuantizer), SAMPLES), rule, SAMPLES) < stock
    graph = quantised(rule, quantizer_of(), SAMPLES)
    assert ratio(graph, rule, SAMPLES) > ours
    assert roots(graph) == 1


@pytest.mark.parametrize("rule", [energy, spectrum, loudness, bounded, LOGARITHMS["of a square"][0]])
def test_the_one_delegate_is_exact(rule, profile):
    ours_exactly(rule, SAMPLES, profile)


def test_silence_is_the_lowest_value_and_louder_is_never_less():
    graph = quantised(energy, quantizer_of(), SAMPLES)
    loudness = torch.linspace(0, 1, 12)[:, None]
    result = graph(torch.ones(1, 12, 32) * loudness)
    assert bool(result.isfinite().all())
    assert result[0, 0] == result.min()
    assert bool((result.diff() > -0.1).all())


class TestLogarithms(Rewriting):
    step = staticmethod(refine_logs)
    inputs = (rows(0)[0].abs() + 0.1,)
    written: ClassVar = {
        "of a sum of squares": unbounded,
        "of a part of a sum": lambda m, x: ((x * x).sum(-1) * 0.5).log(),
        "of a share of a sum, to the base of 10": lambda m, x: ((x * x).sum(-1) * 0.1 + 1e-3).log10(),
        "of one square": lambda m, x: (x * x + 1e-3).log(),
        "of the squares of two": lambda m, x: (lambda y: (x * x + y * y).log())(x + 1),
    }
    kept: ClassVar = {
        "of a square and a large number": lambda m, x: (x * x + 1).log(),
        "of a power and a large number": lambda m, x: ((x**2 + 0.5) * 2).log(),
        "of a sum": lambda m, x: x.sum(-1).log(),
        "of products": lambda m, x: (x * (x + 1)).sum(-1).log(),
        "of squares that something else reads": lambda m, x: (lambda s: (s, (s + (y := x + 1) * y).log()))(x * x),
        "of the negative of a sum": lambda m, x: (5000 - (x * x).sum(-1)).log(),
        "of a sum with a value": lambda m, x: ((x * x).sum(-1) + x[..., 0]).log(),
    }


@pytest.mark.parametrize(
    "rule",
    [energy, lambda m, x: energy(m, x).view(3, 4), bounded, loudness],
    ids=["alone", "before a view", "of a mean", "of a mean in decibels"],
)
def test_16_bits_have_steps_enough(rule):
    """What was written is taken back."""
    quantizer = quantizer_of(profile="TOSA-1.0+INT+int16", config=WIDE)
    graph = quantised(rule, quantizer, SAMPLES)
    assert roots(graph) == 0
    logarithms = (torch.ops.aten.log.default, torch.ops.aten.log10.default)
    assert sum(len(graph.graph.find_nodes(op="call_function", target=each)) for each in logarithms) == 1
    assert ratio(graph, rule, SAMPLES) > 40


def test_an_ethos_u_and_training_compute_it_in_one_step():
    assert roots(quantised(energy, for_ethos_u("ethos-u55-128"), SAMPLES)) == 0
    quantizer = quantizer_of(is_qat=True)
    assert roots(quantised_whole(quantizer, Lambda(energy), SAMPLES, is_qat=True)) == 0
