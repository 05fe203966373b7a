"""A mask leaves the domain of the scores to the scores, and a masked score has a probability of 0."""

import math
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, quantize, tosa
from masked import ALLOWED, LENGTH, LOWEST, Masked, additive, check_exact, heads, off, padding, scores, softmax_of
from rewriting import Rewriting

from safe_arm.quantizer.masks.masked_softmax import mask_probabilities

SPELLINGS = {
    "-1e4": lambda m, x: x + m.low,
    "lowest": lambda m, x: m.lowest + x,
    "infinite": lambda m, x: x + m.infinite,
    "where": lambda m, x: torch.where(m.allowed, x, LOWEST),
    "where-not": lambda m, x: torch.where(~m.allowed, torch.tensor(-1e9), x),
    "fill": lambda m, x: x.masked_fill(~m.allowed, -math.inf),
    "arange": lambda m, x: torch.where(torch.arange(LENGTH)[:, None] >= torch.arange(LENGTH), x, -1e4),
    "tril": lambda m, x: x.masked_fill(torch.ones(LENGTH, LENGTH).tril() == 0, -1e9),
    "raised": lambda m, x: torch.max(x + m.lowest, torch.tensor(LOWEST)),
    "reshaped": lambda m, x: (x + m.low).view(6, LENGTH, LENGTH),
    "alibi": lambda m, x: (x - (torch.arange(LENGTH) - torch.arange(LENGTH)[:, None]).abs()) + m.infinite,
}
ATTENTION = {
    "causal": lambda m, *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True),
    "boolean": lambda m, *qkv: F.scaled_dot_product_attention(*qkv, attn_mask=m.allowed),
    "additive": lambda m, *qkv: F.scaled_dot_product_attention(*qkv, attn_mask=m.infinite),
}


@pytest.mark.parametrize("name", ["-1e4", "arange"])
def test_stock_leaves_the_scores_a_few_codes(name):
    net = softmax_of(SPELLINGS[name])
    quantised = quantize(net, (scores(),), tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    assert off(quantised(scores()), net(scores())) > 60


@pytest.mark.parametrize("name", SPELLINGS)
def test_ours_rounds_scores_alone(name):
    net = softmax_of(SPELLINGS[name])
    quantised = quantize(net, (scores(),), tosa(PROFILES[0]))
    result = quantised(scores())
    # Half a code of two scores is 12 % of a probability, at most 8 codes of 64; with ALiBi the range is wider.
    assert off(result, net(scores())) <= (12 if name == "alibi" else 8)
    assert (result[..., ~ALLOWED] == 0).all()
    assert not {"where", "arange", "full", "tril"} & {node.name.split("_")[0] for node in quantised.graph.nodes}


@pytest.mark.parametrize("profile", [*PROFILES, "TOSA-1.0+INT+u55"])
@pytest.mark.parametrize("name", ["-1e4", "reshaped"])
def test_a_delegate_is_exact(name, profile):
    check_exact(softmax_of(SPELLINGS[name]), (scores(),), profile)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_one_exact_delegate(name):
    check_exact(Masked(ATTENTION[name]).eval(), heads(), PROFILES[0])


def test_a_row_that_attention_masks_as_a_whole_stays_0():
    keep = padding(0, 5)
    net = Masked(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=keep)).eval()
    inputs = tuple(torch.cat(pair) for pair in zip(heads(), heads(3), strict=True))
    quantised = quantize(net, inputs, tosa(PROFILES[0]))
    result, expected = quantised(*inputs), net(*inputs)
    assert (result[0] == 0).all()
    assert (expected[0] == 0).all()
    assert float((result - expected).abs().max()) < 0.05


def hidden_row(low):
    mask = torch.zeros(LENGTH, LENGTH)
    mask[3] = low
    return mask


@pytest.mark.parametrize("low", [-1e9, torch.finfo(torch.float32).min])
def test_a_row_that_is_masked_until_float32_forgets_it_is_uniform_and_costs_the_others_nothing(low):
    mask = additive(low)
    mask[3] = low
    net = softmax_of(lambda m, x: x + mask)
    result, expected = quantize(net, (scores(),), tosa(PROFILES[0]))(scores()), net(scores())
    assert (result[..., 3, :] == result[0, 0, 3, 0]).all()
    assert off(result, expected) <= 8


class TestMasks(Rewriting):
    step = staticmethod(mask_probabilities)
    written: ClassVar = {name: rule for name, rule in SPELLINGS.items() if name != "raised"}
    kept: ClassVar = {
        "a row": lambda m, x: x + hidden_row(-1e4),
        "an infinite row": lambda m, x: x + hidden_row(-math.inf),
        "a row that is filled": lambda m, x: x.masked_fill(hidden_row(1.0) == 1, -math.inf),
        "NaN": lambda m, x: x + hidden_row(math.nan),
        "a number that is not low": lambda m, x: x + hidden_row(-16.0).T,
        "0": lambda m, x: torch.where(m.allowed, x, 0.0),
        "less": lambda m, x: torch.where(m.allowed, x, x - 1),
        "nothing": lambda m, x: x.masked_fill(torch.zeros(LENGTH, dtype=torch.bool), -1e4),
        "no mask": lambda m, x: x * 2,
        "another dtype": lambda m, x: (x + m.low).softmax(-1, dtype=torch.float64),
    }

    def case(self, row):
        return softmax_of(row), (scores(),)
