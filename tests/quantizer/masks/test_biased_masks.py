"""A mask that a bias has in it costs the scores nothing, and the delegate is exact."""

from functools import cache
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, tosa
from masked import LOWEST, padded_rows
from ratios import ratio
from rewriting import Rewriting
from small import Built
from spelled import check_one_exact
from stubborn import calibrated, exported, quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.masks.biased_masks import add_biases_first

SAMPLES = padded_rows()
BIAS = torch.randn(1, 12, 12, generator=torch.Generator().manual_seed(1))
CAUSAL = torch.full((12, 12), LOWEST).triu(1)
FUTURE = CAUSAL < 0
NEAR = torch.full((12, 12), -8.0).triu(1)


def built(rule):
    return Built(rule, bias=torch.nn.Parameter(BIAS.clone())).eval()


WRITTEN = {
    "a constant mask": lambda m, x, keep: (x * 2 + (m.bias + CAUSAL)).softmax(-1),
    "the mask first, and a cast": lambda m, x, keep: ((CAUSAL + m.bias) + x * 2).float().softmax(-1).type_as(x),
    "a mask at run time": lambda m, x, keep: (x * 2 + (m.bias + (1 - keep) * -1e9)).softmax(-1),
    "of the least number": lambda m, x, keep: (x * 2 + (m.bias + (1 - keep) * LOWEST)).softmax(-1),
    "filled in": lambda m, x, keep: (x * 2 + m.bias.masked_fill(keep == 0, -1e9)).softmax(-1),
    "a constant mask filled in": lambda m, x, keep: (x * 2 + m.bias.masked_fill(FUTURE, -torch.inf)).softmax(-1),
    "chosen": lambda m, x, keep: (x * 2 + torch.where(FUTURE, LOWEST, m.bias)).softmax(-1),
    "chosen, the bias first": lambda m, x, keep: (torch.where(~FUTURE, m.bias, LOWEST) + x * 2).softmax(-1),
    "a constant bias": lambda m, x, keep: (x * 2 + (NEAR + (1 - keep) * -1e9)).softmax(-1),
    "two biases": lambda m, x, keep: (x * 2 + (m.bias + (m.bias.exp() + CAUSAL))).softmax(-1),
}
RULES = {
    **WRITTEN,
    "attention": lambda m, x, keep: F.scaled_dot_product_attention(x, x, x, attn_mask=m.bias + CAUSAL),
}
YARDSTICKS = {
    "two biases": lambda m, x, keep: (x * 2 + m.bias + m.bias.exp()).softmax(-1),
    "": lambda m, x, keep: (x * 2 + m.bias).softmax(-1),
}


@cache
def ratio_of(rule, quantizer_class=SafeTOSAQuantizer):
    net = built(rule)
    graph_module = calibrated(exported(net, SAMPLES[0]), quantizer_of(quantizer_class), SAMPLES)
    return ratio(graph_module, lambda m, *inputs: net(*inputs), SAMPLES)


@pytest.mark.parametrize("name", RULES)
def test_a_mask_costs_the_scores_nothing(name):
    assert ratio_of(RULES[name]) > ratio_of(YARDSTICKS.get(name, YARDSTICKS[""])) - 1


def test_stock_loses_the_scores():
    assert ratio_of(WRITTEN["a constant mask"], TOSAQuantizer) < 20


def test_layers_that_share_a_bias_are_one_exact_delegate():
    def rule(m, x, keep):
        biased = m.bias + CAUSAL
        first = (x * 2 + biased).softmax(-1) @ x
        return (first + biased).softmax(-1), (first + (m.bias + (1 - keep) * -1e9)).softmax(-1)

    graph_module = calibrated(exported(built(rule), SAMPLES[0]), quantizer_of(), SAMPLES)
    check_one_exact(graph_module, SAMPLES[0], tosa(PROFILES[0]))


class TestBiases(Rewriting):
    step = staticmethod(add_biases_first)
    inputs = SAMPLES[0]
    also = SAMPLES[1:2]

    def case(self, row):
        return built(row), self.inputs

    written: ClassVar = {
        **WRITTEN,
        "behind another mask": lambda m, x, keep: (x + (1 - keep) * -1e9 + (m.bias + keep * -1e9)).softmax(-1),
    }
    kept: ClassVar = {
        "two masks at run time": lambda m, x, keep: (x + (1 - keep) * -1e9 + keep.exp() * -1e9).softmax(-1),
        "a small number": lambda m, x, keep: (x + (m.bias + NEAR)).softmax(-1),
        "a mask and a bias that are constant": lambda m, x, keep: (x + (NEAR + CAUSAL)).softmax(-1),
        "a bias and a mask in turn": lambda m, x, keep: ((x + m.bias) + CAUSAL).softmax(-1),
        "a small number that is filled in": lambda m, x, keep: (x + m.bias.masked_fill(keep == 0, -8)).softmax(-1),
        "a constant bias with a mask filled in": lambda m, x, keep: (x + NEAR.masked_fill(FUTURE, -1e9)).softmax(-1),
        "no softmax": lambda m, x, keep: (x + (m.bias + CAUSAL)).relu(),
    }
