"""A mask is a mask in every spelling: the scores keep their domain, and the delegate is exact."""

from functools import cache
from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from masked import LOWEST, padded_rows
from ratios import ours_exactly, quantised, ratio
from rewriting import Rewriting
from small import together
from stubborn import quantizer_of

from safe_arm.quantizer.masks.spelled_masks import spell_out_masks

SAMPLES = padded_rows()


SPELLED = {
    "subtracted": lambda m, x, keep: (x * 2 - (1 - keep) * 1e9).softmax(-1),
    "subtracted, the number first": lambda m, x, keep: (x * 2 - 1e4 * (1 - keep)).softmax(-1),
    "subtracted and moved": lambda m, x, keep: (x * 2 - ((1 - keep[0]) * 1e9)[None]).softmax(-1),
    "of the mask less 1": lambda m, x, keep: (x * 2 + (keep - 1) * 1e9).softmax(-1),
    "the logarithm of a condition": lambda m, x, keep: (x * 2 + (keep > 0).float().log()).softmax(-1),
    "bounded by the least number": lambda m, x, keep: (
        (keep > 0).float().log().clamp(min=torch.finfo(torch.float32).min) + x * 2
    ).softmax(-1),
    "bounded by a low number": lambda m, x, keep: (x * 2 + (keep > 0).float().log().clamp(min=-1e9)).softmax(-1),
    "scaled behind": lambda m, x, keep: (x.masked_fill(keep == 0, -1e9) / 0.5).softmax(-1),
    "chosen and scaled behind": lambda m, x, keep: (
        torch.where(keep > 0, x, torch.full_like(x, -(2**32) + 1)) / 2.0 * 4
    ).softmax(-1),
    "scaled until it is infinite": lambda m, x, keep: (
        torch.where(keep > 0, x, torch.finfo(torch.float32).min) * 2
    ).softmax(-1),
    "filled in place": lambda m, x, keep: (x * 2).masked_fill_(keep == 0, -1e9).softmax(-1),
}


def joined(m, x, attended, places):
    """A causal mask and one of padding as transformers 4.40 to 4.48 joins them."""
    causal = torch.full((12, 12), LOWEST).triu(1) * (torch.arange(12) > places.reshape(-1, 1))
    causal = causal[None].expand(1, -1, -1).clone()
    padded = causal + attended[:, None] == 0
    return (x * 2 + causal.masked_fill(padded, LOWEST)).softmax(-1)


JOINED = [(x, keep[:, 0].int(), torch.arange(12).int()) for x, keep in SAMPLES]
#: Known without being written anew.
KNOWN = {
    "chosen from a full tensor": lambda m, x, keep: torch.where(keep == 0, torch.full_like(x, -1e9), x * 2).softmax(-1),
    "zeros that are filled": lambda m, x, keep: (
        x * 2 + torch.zeros_like(x).masked_fill(keep == 0, -torch.inf)
    ).softmax(-1),
    "the logarithm of a mask": lambda m, x, keep: (x * 2 + (keep + 1e-45).log()).softmax(-1),
}


def ratio_of(rule):
    return ratio(quantised(rule, quantizer_of(), SAMPLES), rule, SAMPLES)


@cache
def unmasked():
    return ratio_of(lambda m, x, keep: (x * 2).softmax(-1))


@pytest.mark.parametrize("rule", [*SPELLED.values(), *KNOWN.values()], ids=[*SPELLED, *KNOWN])
def test_a_mask_costs_the_scores_nothing(rule):
    assert ratio_of(rule) > unmasked() - 1


def test_masks_that_are_joined_cost_the_scores_nothing_and_stock_loses_half():
    stock, ours = quantised(joined, quantizer_of(TOSAQuantizer), JOINED), ours_exactly(joined, JOINED)
    assert ratio(ours, joined, JOINED) > unmasked() - 1 > ratio(stock, joined, JOINED) + 3


def test_the_one_delegate_is_exact():
    names = "subtracted", "of the mask less 1", "the logarithm of a condition", "bounded by the least number"
    ours_exactly(together(SPELLED, *names), SAMPLES)


class TestSpellings(Rewriting):
    step = staticmethod(spell_out_masks)
    inputs = SAMPLES[0]
    also = SAMPLES[1:2]
    written = SPELLED
    kept: ClassVar = {
        "a sum of floats that is compared": lambda m, x, keep: x + (torch.full((12,), LOWEST) + keep == 0),
        "a sum with small numbers that is compared": lambda m, x, keep: (
            x + (torch.full((12,), -1.0) + keep.long() == 0)
        ),
        "an added mask": lambda m, x, keep: (x + (1 - keep) * -1e9).softmax(-1),
        "the logarithm of numbers": lambda m, x, keep: (x + (keep * 0.5 + 0.5).log()).softmax(-1),
        "a mask more a number": lambda m, x, keep: (x + (keep + 1) * 1e9).softmax(-1),
        "a mask less a half": lambda m, x, keep: (x + (keep - 0.5) * 1e9).softmax(-1),
        "a small number": lambda m, x, keep: (x - (1 - keep) * 8).softmax(-1),
        "a scaled picture": lambda m, x, keep: x * 255 - keep,
        "a picture less 1": lambda m, x, keep: ((x - 1) * 127.5).relu(),
        "a mask that others read": lambda m, x, keep: (lambda mask: ((x - mask).softmax(-1), mask))((1 - keep) * 1e9),
        "a mask from which is subtracted": lambda m, x, keep: ((1 - keep) * 1e9 - x).softmax(-1),
        "a value that others read": lambda m, x, keep: (lambda v: (v + 1, v.masked_fill_(keep == 0, -1e9).softmax(-1)))(
            x * 2
        ),
        "an input that is filled in place": lambda m, x, keep: x.masked_fill_(keep == 0, -1e9).softmax(-1),
        "a negative scale": lambda m, x, keep: (x.masked_fill(keep == 0, -1e9) * -1).sigmoid(),
        "a scaled picture with borders": lambda m, x, keep: x.masked_fill(keep == 0, 0.0) * 2,
        "a scaled value that others read": lambda m, x, keep: (lambda v: ((v / 2).softmax(-1), v.amax(-1)))(
            x.masked_fill(keep == 0, -1e9)
        ),
        "a view that is filled in place": lambda m, x, keep: (lambda v: v.view(12, 12).masked_fill_(keep[0] == 0, 0.0))(
            x * 2
        ),
    }


class TestJoined(TestSpellings):
    """What joins masks, and what is like it."""

    inputs = JOINED[0]
    also = JOINED[1:2]
    written: ClassVar = {"joined": joined}
    kept: ClassVar = {
        "other numbers": lambda m, x, attended, places: x + (torch.arange(12) * LOWEST / 12 - 1 + attended == 0),
        "another number": lambda m, x, attended, places: x + (torch.full((12,), LOWEST) + attended == 1),
        "a multiple": lambda m, x, attended, places: x + (attended.add(attended, alpha=2) == 0),
    }
