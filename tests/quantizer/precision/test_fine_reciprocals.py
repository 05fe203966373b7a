"""A broadcast divisor has a reciprocal with the bits of two steps, and the delegate computes it exactly."""

from typing import ClassVar

import pytest
import torch
from graph_changes import annotated, annotates_no_more, changes
from lowering import targets
from ratios import both_ratios, exactly_on, ours_exactly, quantised, ratio, ratios
from rewriting import Rewriting
from small import Lambda
from stubborn import check_trained, quantizer_of

from safe_arm.quantizer.precision.fine_reciprocals import keep_reciprocals_fine, refine_reciprocals


def quotient(m, x, y):
    return x / y


def pair(seed, signs=(1.0, 1.0)):
    """Rows with a divisor each, of which one is a hundredth of the largest and divides zeros, as behind a relu."""
    draw = torch.Generator().manual_seed(seed)
    divisors = torch.rand(1, 16, 1, generator=draw) / 2 + 0.5
    rows = torch.randn(1, 16, 16, generator=draw) * divisors
    divisors[0, 0], rows[0, 0] = 0.01, 0
    return rows, divisors * torch.tensor(signs).repeat(8).unsqueeze(1)


SIGNS = {"positive": (1.0, 1.0), "negative": (-1.0, -1.0), "both": (1.0, -1.0), "uneven": (1.0, -0.3)}
PAIRS = {name: [pair(seed, signs) for seed in range(8)] for name, signs in SIGNS.items()}


DRAWS = [torch.Generator().manual_seed(seed) for seed in range(8)]


class TestReciprocals(Rewriting):
    step = staticmethod(refine_reciprocals)
    inputs = pair(0)
    also = ((torch.ones(1, 16, 16), torch.tensor([0.0, -0.0, 1e-30, -1e30] * 4).view(1, 16, 1)),)
    written: ClassVar = {
        "a divisor for each row": lambda m, x, y: x * y.reciprocal(),
        "two dividends": lambda m, x, y: (y.reciprocal() * x, (x + 1) * y.reciprocal()),
        "a sum of masked exponentials": lambda m, x, y: x * (x.exp() * (x > 0)).sum(-1, True).clamp(0.1).reciprocal(),
        "the reciprocal of an exponential": lambda m, x, y: x * y.clamp(-9, 9).exp().reciprocal(),
        "a divisor of fewer dimensions": lambda m, x, y: x * y[0, :, 0].reciprocal(),
    }
    kept: ClassVar = {
        "an exponential that is read again": lambda m, x, y: x + (e := x.exp()) * e.reciprocal(),
        "a divisor for each value": lambda m, x, y: x * (x + y).reciprocal(),
        "a reciprocal that is an output": lambda m, x, y: y.reciprocal(),
        "a reciprocal that is added": lambda m, x, y: x + y.reciprocal(),
        "one divided by a divisor": lambda m, x, y: y.reciprocal() * 2,
        "16 bits in the net": lambda m, x, y: x.half() * y.half().reciprocal(),
    }


#: Softmaxes whose reciprocal has 8 bits in one step.
OF_SOFTMAXES = {
    "without a maximum": lambda m, x, y: x.exp() * x.exp().sum(-1, keepdim=True).reciprocal() + y,
    "masked": lambda m, x, y: x * ((x - y).exp() * (x > 0)).sum(-1, True).clamp(0.1).reciprocal() + y,
}


@pytest.mark.parametrize("rule", OF_SOFTMAXES.values(), ids=OF_SOFTMAXES)
def test_the_sum_of_a_softmax_that_is_not_exact_is_divided_by_in_one_step(rule):
    assert targets(annotated(Lambda(rule), quantizer_of(), pair(0))).count("reciprocal") == 1


def decayed(m, x, y):
    return x / y.exp()


def test_what_is_divided_by_an_exponential_is_rounded_once_less():
    samples = [(torch.randn(1, 16, 16, generator=draw), torch.randn(1, 16, 16, generator=draw)) for draw in DRAWS]
    stock, ours = both_ratios(decayed, samples)
    assert stock < 8
    assert ours > 28
    ours_exactly(decayed, samples)


@pytest.mark.parametrize("pairs", PAIRS.values(), ids=PAIRS)
def test_stock_loses_what_the_smallest_divisor_leaves_the_others_and_ours_does_not(pairs):
    borders, stock, ours = ratios(quotient, pairs)
    assert stock < borders - 7
    assert ours > borders - 0.5


def test_masked_exponentials_that_no_maximum_bounds_keep_their_shares():
    """Their sums differ as any divisors do: taken for those of a softmax they lost 6 dB, and were behind stock."""
    causal = torch.ones(16, 16).tril()

    def shares(m, x, y):
        e = x.exp() * causal
        return e / e.sum(-1, keepdim=True)

    borders, stock, ours = ratios(shares, [pair(seed) for seed in range(8)])
    assert ours > max(borders - 0.5, stock)


@pytest.mark.parametrize("pairs", PAIRS.values(), ids=PAIRS)
def test_the_one_delegate_is_exact(pairs, profile):
    assert targets(ours_exactly(quotient, pairs, profile)).count("reciprocal") == 2


def test_ethos_u_computes_it_exactly(ethos_u):
    assert ratio(exactly_on(ethos_u, quotient, PAIRS["positive"]), quotient, PAIRS["positive"]) > 36


def test_a_row_of_zeros_spoils_no_other():
    """Its quotient is NaN in the net, and its reciprocal infinite."""

    def shares(m, x):
        return x / x.sum(-1, keepdim=True)

    rows = torch.rand(1, 8, 16, generator=torch.Generator().manual_seed(0))
    rows[0, 0] = 0
    with pytest.warns(UserWarning, match="include NaN"):
        graph_module = quantised(shares, quantizer_of(), [(rows,)])
    wanted = shares(None, rows)[:, 1:]
    assert (graph_module(rows)[:, 1:] - wanted).abs().max() <= 1.5 * wanted.max() / 255  # codes


def test_twice_equals_once():
    model = annotated(Lambda(quotient), quantizer_of(), pair(0))
    assert targets(model).count("reciprocal") == 2
    assert not changes(refine_reciprocals, model)
    assert annotates_no_more(keep_reciprocals_fine, model)


def test_divisors_are_trained():
    check_trained(lambda m, x: x / m.parameter, pair(0)[0], torch.linspace(0.02, 2, 16).view(16, 1), rtol=0.1, atol=0.0)
