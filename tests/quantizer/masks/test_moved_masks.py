"""Scores that are moved between their mask and a softmax are masked behind the move: stock leaves them one code."""

import math
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import HISTOGRAM
from masked import LOWEST
from ratios import ours_exactly, quantised, ratio, ratio_of_ours
from rewriting import Rewriting
from stubborn import quantizer_of

from safe_arm.quantizer.masks.moved_masks import mask_behind_moves

GENERATOR = torch.Generator().manual_seed(0)
MASK = torch.rand(1, 4, 8, 8, generator=GENERATOR) > 0.7
MASK[..., 0] = False
MASK[:, :, 0] = False
#: A mask of the last dimension.
LAST = torch.arange(8) > 4
SAMPLES = [(torch.randn(1, 4, 8, 8, generator=GENERATOR), MASK) for _ in range(4)]


def hidden(x):
    return x.masked_fill(MASK, -1e9)


FILLED = {
    "permuted": lambda m, x, mask: hidden(x).permute(0, 2, 1, 3).softmax(-1),
    "transposed, by a mask of run time": lambda m, x, mask: (
        x.masked_fill(mask[:, :1], -1e4).transpose(1, 2).softmax(-1)
    ),
    "with its dimensions swapped and reshaped": lambda m, x, mask: (
        torch.where(LAST, -math.inf, x).swapaxes(0, 1).reshape(8, 4, 8).softmax(-1)
    ),
    "sliced": lambda m, x, mask: torch.where(mask.logical_not(), x, LOWEST)[:, :2].softmax(-1),
    "in chunks": lambda m, x, mask: hidden(x).chunk(2, 1)[0].softmax(-1),
    "unbound": lambda m, x, mask: x.masked_fill(mask, -1e9).unbind(1)[1].softmax(-1),
    "shuffled": lambda m, x, mask: F.pixel_shuffle(hidden(x), 2).softmax(-1),
    "rolled": lambda m, x, mask: torch.cat([(y := x.masked_fill(mask, -1e9))[:, 1:], y[:, :1]], 1).softmax(-1),
    "joined with others": lambda m, x, mask: torch.cat([hidden(x), x[..., :2]], -1).softmax(-1),
    "clamped": lambda m, x, mask: hidden(x).clamp(-1e4, 1e4).softmax(-1),
    "moved and scaled": lambda m, x, mask: (hidden(x).movedim(1, 0) / 0.5).softmax(-1),
    "before a logarithm": lambda m, x, mask: hidden(x).permute(0, 2, 1, 3).logsumexp(-1),
}
ADDED = {
    "added": lambda m, x, mask: (x + MASK * LOWEST).permute(0, 2, 1, 3).softmax(-1),
    "added at run time": lambda m, x, mask: (x + mask[:, :1].float() * -1e9).transpose(1, 2).softmax(-1),
    "added, and joined with a sink": lambda m, x, mask: torch.cat([x + MASK * LOWEST, x[..., :1]], -1).softmax(-1),
}
SHARED = {
    "a scale for one of two readers": lambda m, x, mask: (
        (z := torch.where(mask, -1e8, x * 2)).amax(-1),
        (z / 0.5).softmax(-1),
    ),
    "a logarithm and a place": lambda m, x, mask: (
        (z := hidden(x * 2)).argmax(-1),
        z.log_softmax(-1).amax(-1),
    ),
    "a scale for two readers": lambda m, x, mask: (
        (z := torch.where(mask, -1e8, x * 2) / 0.5).softmax(-1),
        z.log_softmax(-1),
    ),
}
MOVED = {**FILLED, **ADDED}


class TestMoves(Rewriting):
    step = staticmethod(mask_behind_moves)
    inputs = SAMPLES[0]
    also = SAMPLES[1:2]
    written: ClassVar = {**MOVED, **SHARED}
    kept: ClassVar = {
        "scores that are not moved": lambda m, x, mask: hidden(x).softmax(-1),
        "a logarithm and a maximum": lambda m, x, mask: ((z := hidden(x)).amax(-1), z.log_softmax(-1)),
        "scores that are reshaped": lambda m, x, mask: hidden(x).reshape(4, 8, 8).softmax(-1),
        "scores that are no softmax's": lambda m, x, mask: hidden(x).permute(0, 2, 1, 3) * 2,
        "a number that is near": lambda m, x, mask: x.masked_fill(mask, -8.0).permute(0, 2, 1, 3).softmax(-1),
        "a clamp that shows a score": lambda m, x, mask: hidden(x).clamp(-8, 8).softmax(-1),
        "a negative factor": lambda m, x, mask: (hidden(x) * -1).softmax(-1),
        "several numbers": lambda m, x, mask: (
            torch.where(mask, torch.arange(8) - 1e4, x).permute(0, 2, 1, 3).softmax(-1)
        ),
        "parts with two numbers": lambda m, x, mask: torch.cat([hidden(x), x.masked_fill(mask, -1e4)], -1).softmax(-1),
        "a part that is masked at run time": lambda m, x, mask: torch.cat([x.masked_fill(mask, -1e9), x], -1).softmax(
            -1
        ),
        "a mask that is added, and clamped": lambda m, x, mask: (x + MASK * LOWEST).clamp(-1e4, 1e4).softmax(-1),
        "a mask of run time that is added, in chunks": lambda m, x, mask: (
            (x + mask.float() * -1e9).chunk(2, 1)[0].softmax(-1)
        ),
        "a bias that is added": lambda m, x, mask: (x + MASK * -2.0).permute(0, 2, 1, 3).softmax(-1),
    }


@pytest.mark.parametrize("rule", MOVED.values(), ids=MOVED)
def test_a_mask_costs_the_scores_nothing(rule):
    assert ratio_of_ours(rule, SAMPLES, HISTOGRAM) > 25


@pytest.mark.parametrize("name", ["permuted", "joined with others", "added"])
def test_stock_keeps_nothing(name):
    rule = MOVED[name]
    assert ratio(quantised(rule, quantizer_of(TOSAQuantizer), SAMPLES), rule, SAMPLES) < 5


@pytest.mark.parametrize("names", [("permuted", "clamped"), ("transposed, by a mask of run time", "rolled", "unbound")])
def test_the_one_delegate_is_exact(names):
    ours_exactly(lambda m, *inputs: tuple(MOVED[name](m, *inputs) for name in names), SAMPLES)


def test_the_logarithm_of_shared_scores_keeps_its_values():
    both = quantised(SHARED["a logarithm and a place"], quantizer_of(), SAMPLES)

    def rule(m, x, mask):
        return SHARED["a logarithm and a place"](m, x, mask)[1]

    assert ratio(lambda *sample: both(*sample)[1], rule, SAMPLES) > 20


def test_another_reader_keeps_the_masked_scores():
    def rule(m, x, mask):
        return SHARED["a scale for one of two readers"](m, x, mask)[0]

    both = quantised(SHARED["a scale for one of two readers"], quantizer_of(), SAMPLES)
    assert ratio(lambda *sample: both(*sample)[0], rule, SAMPLES) > 25
