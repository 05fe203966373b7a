"""A causal mask and one of padding cost the scores nothing together, and the delegate is exact."""

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

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.masks.combined_masks import combine_masks

SAMPLES = padded_rows()
#: Padding in front: the first rows are hidden as a whole.
HIDDEN_ROWS = (SAMPLES[0][0], 1 - SAMPLES[0][1])
CAUSAL = torch.full((12, 12), LOWEST).triu(1)
FUTURE = CAUSAL < 0
HIDING = torch.full((12, 12), LOWEST).triu()
#: A bias of distances with a mask in it.
DISTANCES = (torch.arange(12)[None] - torch.arange(12)[:, None]) / 4.0
ALIBI = DISTANCES.masked_fill(FUTURE, -torch.inf)

WRITTEN = {
    "added in turn": lambda m, x, keep: ((x * 2 + CAUSAL) + (1 - keep) * -1e9).softmax(-1),
    "added in turn, the causal one last": lambda m, x, keep: (x * 2 + (1 - keep) * -1e9 + CAUSAL).softmax(-1),
    "filled in turn": lambda m, x, keep: (
        (x * 2).masked_fill(keep == 0, -1e9).masked_fill(FUTURE, -torch.inf).softmax(-1)
    ),
    "filled in turn, one number": lambda m, x, keep: (
        (x * 2).masked_fill(FUTURE, -1e9).masked_fill(keep == 0, -1e9).softmax(-1)
    ),
    "one filled into the other": lambda m, x, keep: (x * 2 + ((1 - keep) * LOWEST).masked_fill(FUTURE, LOWEST)).softmax(
        -1
    ),
    "filled in and added": lambda m, x, keep: (torch.where(keep > 0, x * 2, -1e9) + CAUSAL).softmax(-1),
    "with a bias": lambda m, x, keep: (x * 2 + ALIBI + (1 - keep) * -1e9).softmax(-1),
}
#: The causal mask and that of padding are added up first, which another step takes apart.
TOGETHER = {"added together": lambda m, x, keep: (x * 2 + (CAUSAL + (1 - keep) * -1e9)).softmax(-1)}
RULES = WRITTEN | TOGETHER


def unmasked(m, x, keep):
    return (x * 2 + DISTANCES).softmax(-1)


@cache
def ratio_of(rule, quantizer_class=SafeTOSAQuantizer):
    return ratio(quantised(rule, quantizer_of(quantizer_class), SAMPLES), rule, SAMPLES)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_masks_cost_the_scores_nothing(rule):
    assert ratio_of(rule) > ratio_of(unmasked) - 1


def test_stock_loses_the_scores():
    assert ratio_of(RULES["added together"], TOSAQuantizer) < 20


def test_the_one_delegate_is_exact():
    ours_exactly(together(RULES, "added together", "filled in turn"), SAMPLES)


class TestCombined(Rewriting):
    step = staticmethod(combine_masks)
    inputs = SAMPLES[0]
    also = (SAMPLES[1], HIDDEN_ROWS)
    written = WRITTEN
    kept: ClassVar = {
        "padding alone": lambda m, x, keep: (x + (1 - keep) * -1e9).softmax(-1),
        "a causal mask alone": lambda m, x, keep: (x + CAUSAL).softmax(-1),
        "one condition": lambda m, x, keep: x.masked_fill(FUTURE | (keep == 0), -1e9).softmax(-1),
        "numbers alike": lambda m, x, keep: (x + CAUSAL + (1 - keep) * LOWEST).softmax(-1),
        "the lower number below": lambda m, x, keep: (
            x.masked_fill(FUTURE, -torch.inf).masked_fill(keep == 0, -1e9).softmax(-1)
        ),
        "two at run time": lambda m, x, keep: (x + CAUSAL + (1 - keep) * -1e9 + keep.exp() * -1e9).softmax(-1),
        "rows that a constant hides": lambda m, x, keep: (x + HIDING + (1 - keep) * -1e9).softmax(-1),
        "no softmax": lambda m, x, keep: (x + CAUSAL + (1 - keep) * -1e9).relu(),
    }
