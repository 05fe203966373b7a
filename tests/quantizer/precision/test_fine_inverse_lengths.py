"""What is divided by the root of a sum of squares has the bits of two steps, and the delegate computes it exactly."""

from typing import ClassVar

import pytest
import torch
from lowering import PROFILES, targets
from ratios import exactly_on, histogram_ratios, ours_exactly
from rewriting import Rewriting
from stubborn import check_trained

from safe_arm.quantizer.precision.fine_inverse_lengths import refine_inverse_lengths
from safe_arm.quantizer.precision.fine_lengths import refine_lengths
from safe_arm.quantizer.precision.fine_reciprocals import refine_reciprocals


def spectrum(seed):
    """Real and imaginary parts, the lengths of which differ by some ten."""
    draw = torch.Generator().manual_seed(seed)
    return (torch.randn(1, 2, 16, 6, generator=draw),)


def length(x):
    return (x[:, :1] ** 2 + x[:, 1:] ** 2 + 1e-3).sqrt()


def bare_length(x):
    return (x[:, :1] ** 2 + x[:, 1:] ** 2) ** 0.5


SAMPLES = [spectrum(seed) for seed in range(8)]
PHASES = {
    "of one part": lambda m, x: x[:, :1] / length(x),
    "of both": lambda m, x: x / length(x),
    "by an inverse root": lambda m, x: x[:, 1:] * torch.rsqrt(x[:, :1] ** 2 + x[:, 1:] ** 2 + 1e-3),
    "by a sum": lambda m, x: x[:, :1] / ((x * x).sum(1, keepdim=True) + 1e-3).sqrt(),
    "by a bounded root": lambda m, x: x[:, :1] / bare_length(x).clamp(min=0.02),
    "by a bounded norm": lambda m, x: x[:, :1] / x.norm(dim=1, keepdim=True).clamp(min=0.02),
    "by a magnitude": lambda m, x: x[:, 1:] / (x[:, :1] ** 2 + 1e-2).sqrt(),
    "by a maximum": lambda m, x: x[:, :1] / torch.maximum(bare_length(x), torch.tensor(0.02)),
}
EACH = pytest.mark.parametrize("rule", PHASES.values(), ids=PHASES)


class TestInverseLengths(Rewriting):
    step = staticmethod(refine_inverse_lengths)
    inputs = spectrum(0)
    gone = ()
    written: ClassVar = {
        "squares that are added": lambda m, x: x[:, :1] * torch.rsqrt(x[:, :1].pow(2) + (y := x[:, 1:]) * y + 1e-3),
        "a square": lambda m, x: x * torch.rsqrt(x * x + 1e-3),
        "a sum of squares": lambda m, x: x[:, :1] * torch.rsqrt((x * x).sum(1, keepdim=True) + 1e-3),
        "a bounded sum": lambda m, x: x[:, :1] * torch.rsqrt((x * x).sum(1, keepdim=True).clamp(1e-3)),
    }
    kept: ClassVar = {
        "of a value": lambda m, x: x * torch.rsqrt(x.abs() + 1e-3),
        "a root that is no factor": lambda m, x: torch.rsqrt((x * x).sum(1, keepdim=True) + 1e-3) + x,
        "a root that is squared": lambda m, x: (r := torch.rsqrt((x * x).sum(1, keepdim=True) + 1e-3)) * r,
        "a part of a sum": lambda m, x: x * torch.rsqrt((x * x).sum(1, keepdim=True) * 0.5 + 1e-3),
        "a square and a value": lambda m, x: x * torch.rsqrt(x * x + x.abs() + 1e-3),
    }


@EACH
def test_stock_loses_what_is_divided_by_short_vectors_and_ours_does_not(rule):
    stock, ours = histogram_ratios(rule, SAMPLES)
    assert stock < 27
    assert ours > stock + 5


@EACH
def test_the_one_delegate_is_exact(rule, profile):
    names = targets(ours_exactly(rule, SAMPLES[:2], profile))
    assert names.count("rsqrt") == 2
    assert "reciprocal" not in names


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_an_ethos_u_that_spares_cycles_has_one_step(target):
    names = targets(exactly_on(target, PHASES["of one part"], SAMPLES[:2]))
    assert names.count("rsqrt") == 1


def test_in_two_steps_already_it_stays():
    names = targets(ours_exactly(lambda m, x: torch.nn.functional.normalize(x, dim=1), SAMPLES[:2], PROFILES[0]))
    assert names.count("rsqrt") == 2


def raised(m, x):
    return x[:, :1] / (bare_length(x) + 0.01)


def raised_and_read(m, x):
    return x[:, :1] / ((s := bare_length(x)) + 0.01) * torch.tanh(s)


def bounded_and_read(m, x):
    return x[:, :1] / (s := bare_length(x).clamp(min=0.02)) * torch.tanh(s)


RAISED = pytest.mark.parametrize("rule", [raised, raised_and_read, bounded_and_read])


def in_two_steps(model):
    refine_lengths(model)
    refine_reciprocals(model)


class TestRaisedLengths(Rewriting):
    step = staticmethod(in_two_steps)
    inputs = spectrum(0)
    gone = ()
    also = ((torch.zeros(1, 2, 16, 6),),)
    written: ClassVar = {
        "a number added": lambda m, x: x[:, :1] * (bare_length(x) + 0.01).reciprocal(),
        "a number added, and a bound": lambda m, x: x[:, :1] * (bare_length(x) + 0.01).clamp(0.1).reciprocal(),
        "in another shape": lambda m, x: x[:, 0] * (bare_length(x) + 0.01).view(1, 16, 6).reciprocal(),
    }
    kept: ClassVar = {
        "of a value": lambda m, x: x * (x.exp() + 0.01).reciprocal(),
        "of another root": lambda m, x: x * (x.exp().sqrt() + 0.01).reciprocal(),
    }


def test_a_raised_length_that_is_no_divisor_has_one_step():
    names = targets(ours_exactly(lambda m, x: (bare_length(x) + 0.1).reciprocal(), SAMPLES[:2], PROFILES[0]))
    assert names.count("reciprocal") == 1


@RAISED
def test_stock_loses_what_is_divided_by_short_lengths_with_a_bound_and_ours_does_not(rule):
    stock, ours = histogram_ratios(rule, SAMPLES)
    assert stock < 27
    assert ours > stock + 5


@RAISED
def test_the_one_delegate_of_a_raised_length_is_exact(rule, profile):
    assert targets(ours_exactly(rule, SAMPLES[:2], profile)).count("reciprocal") == 2


@RAISED
@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_an_ethos_u_that_spares_cycles_has_one_step_of_a_raised_length(rule, target):
    assert targets(exactly_on(target, rule, SAMPLES[:2])).count("reciprocal") == 1


def test_raised_lengths_are_trained():
    def rule(m, x):
        scaled = x * m.parameter
        return scaled[:, :1] / (bare_length(scaled) + 1.0)

    check_trained(rule, spectrum(0)[0], torch.ones(6), rtol=0.1, atol=0.0)
