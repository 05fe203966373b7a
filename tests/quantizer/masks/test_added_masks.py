"""Two masks at run time cost the scores nothing together, and the delegate is exact."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from masked import ALLOWED, LOWEST, padded_rows
from ratios import ours_exactly, quantised, ratio
from rewriting import Rewriting
from small import together
from stubborn import quantizer_of

from safe_arm.quantizer.masks.added_masks import add_masks_first
from safe_arm.quantizer.masks.runtime_masks import mask_at_run_time

#: Scores, a mask of padding, and one that is given beside it: 1 where a score is kept.
SAMPLES = [(x, keep, ALLOWED.float()[None]) for x, keep in padded_rows()]
X, KEEP, SEEN = SAMPLES[0]
#: The first rows are hidden as a whole, part of them by both masks.
HIDDEN_ROWS = (X, 1 - KEEP, SEEN)
CAUSAL = torch.full((12, 12), LOWEST).triu(1)


def hide(mask, low):
    return (1 - mask) * low


def filled(mask, low):
    return torch.zeros_like(mask).masked_fill(mask == 0, low)


def expanded(mask):
    """A mask as transformers expands it: filled in where it is not 0."""
    inverted = 1.0 - mask
    return inverted.masked_fill(inverted.to(torch.bool), LOWEST)


def attention(x, mask):
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], mask[:, None])


WRITTEN = {
    "added in turn": lambda m, x, k, s: (x * 2 + hide(k, -1e4) + hide(s, -1e4)).softmax(-1),
    "two numbers": lambda m, x, k, s: (hide(k, -1e9) + (x * 2 + hide(s, -1e4))).softmax(-1),
    "with a constant one": lambda m, x, k, s: (x * 2 + hide(k, -1e4) + CAUSAL + hide(s, -1e4)).softmax(-1),
    "filled in turn": lambda m, x, k, s: (x * 2).masked_fill(k == 0, -1e9).masked_fill(s == 0, -1e9).softmax(-1),
    "chosen in turn": lambda m, x, k, s: torch.where(k > 0, torch.where(s > 0, x * 2, -1e9), -1e9).softmax(-1),
    "filled in of two sizes": lambda m, x, k, s: x.masked_fill(k == 0, -1e9).masked_fill(s == 0, LOWEST).softmax(-1),
    "filled in and added": lambda m, x, k, s: (x * 2 + hide(k, -1e4)).masked_fill(s == 0, LOWEST).softmax(-1),
}
#: Rows that infinities hide as a whole are NaN.
INFINITE = {
    "filled in turn, infinite": lambda m, x, k, s: (
        (x * 2).masked_fill(k == 0, -torch.inf).masked_fill(s == 0, -torch.inf).softmax(-1)
    ),
    "filled in and chosen": lambda m, x, k, s: torch.where(
        k > 0, (x * 2).masked_fill(s == 0, -torch.inf), LOWEST
    ).softmax(-1),
}
#: The masks are one value already.
TOGETHER = {
    "added up": lambda m, x, k, s: (x * 2 + (hide(k, -1e4) + hide(s, -1e4))).softmax(-1),
    "one filled into the other": lambda m, x, k, s: (x * 2 + hide(k, LOWEST).masked_fill(s == 0, LOWEST)).softmax(-1),
    "added up for attention": lambda m, x, k, s: attention(x, filled(k, -torch.inf) + filled(s, -torch.inf)),
    "expanded": lambda m, x, k, s: (x * 2 + (expanded(k) + expanded(s))).softmax(-1),
    "raised": lambda m, x, k, s: torch.max(x * 2 + (expanded(k) + expanded(s)), torch.tensor(LOWEST)).softmax(-1),
}
RULES = WRITTEN | INFINITE | TOGETHER


@pytest.mark.parametrize("name", RULES)
def test_masks_cost_the_scores_nothing(name):
    graph_module = quantised(RULES[name], quantizer_of(), SAMPLES)
    assert ratio(graph_module, RULES[name], SAMPLES) > 27


def test_stock_loses_the_scores():
    stock = quantised(WRITTEN["added in turn"], quantizer_of(TOSAQuantizer), SAMPLES)
    assert ratio(stock, WRITTEN["added in turn"], SAMPLES) < 10


def test_the_one_delegate_is_exact():
    ours_exactly(together(RULES, "with a constant one", "filled in turn"), SAMPLES)


def _with_probabilities(model):
    add_masks_first(model)
    mask_at_run_time(model)


class TestAdded(Rewriting):
    step = staticmethod(add_masks_first)
    inputs = SAMPLES[0]
    also = (SAMPLES[1], HIDDEN_ROWS)
    written = WRITTEN
    kept: ClassVar = {
        "one mask": lambda m, x, k, s: (x + hide(k * s, -1e4)).softmax(-1),
        "one that is filled in": lambda m, x, k, s: x.masked_fill(k * s == 0, -1e4).softmax(-1),
        "a number that scores are not lost in": lambda m, x, k, s: (
            x.masked_fill(k == 0, -1e9).masked_fill(s == 0, -1e4).softmax(-1)
        ),
        "constant ones": lambda m, x, k, s: (x + CAUSAL + CAUSAL).softmax(-1) * k * s,
        "a bias": lambda m, x, k, s: (x + k * 3 + hide(s, -1e4)).softmax(-1),
        "no softmax": lambda m, x, k, s: (x + hide(k, -1e4) + hide(s, -1e4)).relu(),
    }
    # A score that -1e4 is added to is rounded to a thousandth.
    tolerance: ClassVar = {"rtol": 0, "atol": 2e-3}


class TestInfinite(Rewriting):
    step = staticmethod(add_masks_first)
    inputs = SAMPLES[0]
    written = INFINITE
    kept: ClassVar = {"one, infinite": lambda m, x, k, s: x.masked_fill(k * s == 0, -torch.inf).softmax(-1)}


class TestProbabilities(TestAdded):
    step = staticmethod(_with_probabilities)
    kept: ClassVar = {"no softmax": TestAdded.kept["no softmax"]}
