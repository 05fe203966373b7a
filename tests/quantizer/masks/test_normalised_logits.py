"""The probabilities of a categorical distribution keep what a softmax of its masked logits does."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from ratios import borders_and_ours, ours_exactly, quantised, ratio
from rewriting import Rewriting
from stubborn import quantizer_of

from safe_arm.quantizer.masks.normalised_logits import name_normalised_logits

GENERATOR = torch.Generator().manual_seed(2)


def sample():
    keep = torch.rand(16, 5, generator=GENERATOR) < 0.8
    keep[:, 0] = True
    return torch.randn(16, 5, generator=GENERATOR), keep


SAMPLES = [sample() for _ in range(6)]


def masked(x, keep):
    return torch.where(keep, x * 2, -1e8)


def distribution(x, keep):
    return torch.distributions.Categorical(logits=masked(x, keep), validate_args=False)


WRITTEN = {
    "probabilities": lambda m, x, keep: ((z := masked(x, keep)) - z.logsumexp(1, keepdim=True)).softmax(-1),
    "logarithms": lambda m, x, keep: (z := x * 2) - z.logsumexp(-1, True),
    "a distribution": lambda m, x, keep: distribution(x, keep).probs,
    "a softmax of a logarithm": lambda m, x, keep: (x * 2).log_softmax(1).softmax(-1),
    "a logarithm that is normalised again": lambda m, x, keep: (x * 2).log_softmax(1).log_softmax(1),
}


class TestLogits(Rewriting):
    step = staticmethod(name_normalised_logits)
    inputs = SAMPLES[0]
    also = SAMPLES[1:2]
    written = WRITTEN
    kept: ClassVar = {
        "the sum of other values": lambda m, x, keep: x - (x * 2).logsumexp(1, True),
        "a sum that has another shape": lambda m, x, keep: (y := x[:5]) - y.logsumexp(1),
        "a sum of two dimensions": lambda m, x, keep: x - x.logsumexp((0, 1), True),
        "a multiple of the sum": lambda m, x, keep: torch.sub(x, x.logsumexp(1, True), alpha=2),
        "a softmax of another dimension": lambda m, x, keep: x.log_softmax(1).softmax(0),
        "a logarithm alone": lambda m, x, keep: x.log_softmax(1),
    }


@pytest.mark.parametrize("name", ["probabilities", "a distribution"])
def test_masked_logits_keep_their_probabilities_and_stock_loses_them(name):
    rule = WRITTEN[name]
    borders, ours = borders_and_ours(rule, SAMPLES)
    stock = ratio(quantised(rule, quantizer_of(TOSAQuantizer), SAMPLES), rule, SAMPLES)
    assert ours > 40 > 5 > max(borders, stock)


def test_the_one_delegate_is_exact():
    ours_exactly(WRITTEN["a distribution"], SAMPLES)
