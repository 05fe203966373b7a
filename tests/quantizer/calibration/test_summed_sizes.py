"""Calibration at one size, of a net that sums over that dynamic size, is warned about once."""

import pytest
import torch
from lowering import PROFILES
from small import Lambda
from spying import doubts
from stubborn import calibrated, exported, quantizer_of
from torch.export import Dim

LENGTH = ({1: Dim("length", min=2, max=64)},)


def rows(length, seed=0):
    return (torch.randn(2, length, 4, generator=torch.Generator().manual_seed(seed)),)


def told_of(rule, samples, dynamic=LENGTH):
    model = exported(Lambda(rule), samples[0], dynamic)
    return doubts(lambda: calibrated(model, quantizer_of(profile=PROFILES[0]), samples))[1]


SUMMED = {
    "softmax": lambda m, x: x.softmax(1) * 2,
    "normalised": lambda m, x: torch.nn.functional.normalize(x, dim=1) + 1,
    "attention": lambda m, x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
    "a sum": lambda m, x: x.sum(1) * 2,
}


@pytest.mark.parametrize("rule", SUMMED.values(), ids=SUMMED)
def test_samples_of_one_length_are_warned_about_by_the_input_and_the_length(rule):
    (message,) = told_of(rule, [rows(10, seed) for seed in range(3)])
    assert "input 'x' has a dynamic size over which the net sums" in message
    assert "has seen only 10" in message


@pytest.mark.parametrize(
    ("rule", "lengths", "dynamic"),
    [
        (SUMMED["softmax"], (10, 20), LENGTH),
        (SUMMED["softmax"], (10, 10), None),
        (lambda m, x: x.softmax(2) * 2, (10, 10), LENGTH),
        (lambda m, x: x.mean(1) * 2, (10, 10), LENGTH),
    ],
    ids=["two lengths", "a static length", "a sum over another dimension", "a mean"],
)
def test_near_misses_are_not(rule, lengths, dynamic):
    assert told_of(rule, [rows(length, seed) for seed, length in enumerate(lengths)], dynamic) == []
