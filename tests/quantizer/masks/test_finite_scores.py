"""Attention with a relative position bias is one delegate, for its bias masks no row."""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, min_max, quantize, targets, tosa
from masked import LENGTH, Masked, check_exact, heads, scores
from rewriting import Rewriting

from safe_arm.quantizer.masks.finite_scores import name_plain_softmaxes

GENERATOR = torch.Generator().manual_seed(0)
TABLE = torch.randn(20, 2, generator=GENERATOR)
PLACES = torch.randint(0, 20, (LENGTH, LENGTH), generator=GENERATOR)


class Biased(Masked):
    """Has a table of relative positions that BEiT adds to its scores."""

    def __init__(self, rule):
        super().__init__(rule)
        self.table = torch.nn.Parameter(TABLE)
        self.endless = torch.nn.Parameter(TABLE.new_full((LENGTH,), -math.inf))
        self.register_buffer("places", PLACES)

    def bias(self):
        return self.table[self.places.view(-1)].view(LENGTH, LENGTH, 2).permute(2, 0, 1).contiguous()[None]


ATTENTION = Biased(lambda m, *qkv: F.scaled_dot_product_attention(*qkv, attn_mask=m.bias())).eval()


def products(x):
    return x @ x.transpose(-1, -2)


def test_ours_is_one_exact_delegate_and_a_profile_with_float_keeps_it():
    check_exact(ATTENTION, heads(), PROFILES[0])
    assert "_safe_softmax" in targets(quantize(ATTENTION, heads(), tosa("TOSA-1.0+INT+FP"), config=min_max()))


class TestScores(Rewriting):
    step = staticmethod(name_plain_softmaxes)
    gone = ("_safe_softmax",)
    written: ClassVar = {
        "products": lambda m, x: products(x),
        "a table": lambda m, x: products(x)[:, :2] + m.bias(),
        "a constant": lambda m, x: products(x) + m.low,
        "a product of the input": lambda m, x: products(x) + products(x).sigmoid()[:, :, :1],
        "what is dropped in training": lambda m, x: products(x) + F.dropout(products(x), 0.5, training=False),
        "an activation": lambda m, x: products(x) + F.gelu(products(x)),
        "a norm": lambda m, x: F.layer_norm(products(x), (LENGTH,)),
        "a negative": lambda m, x: products(x) - m.bias()[:, :1] - (-products(x)).clamp(max=1),
        "a choice": lambda m, x: products(x) + torch.where(products(x) > 0, 0.0, -1e9),
    }
    kept: ClassVar = {
        "an infinite constant": lambda m, x: products(x) + m.infinite,
        "an infinite parameter": lambda m, x: products(x) + m.endless,
        "an input": lambda m, x: products(x) + x,
        "an infinite choice": lambda m, x: products(x) + torch.where(x > 0, 0.0, -math.inf),
        "what is filled": lambda m, x: products(x).masked_fill(x > 0, -math.inf),
        "an infinite dropout": lambda m, x: products(x) + F.dropout(m.infinite, training=False),
        "a logarithm": lambda m, x: products(x) + products(x).relu().log(),
    }

    def test_stock_keeps_the_safe_softmax(self, written):
        net, inputs = self.case(written)
        how = {"quantizer_class": TOSAQuantizer, "config": min_max()}
        assert "_safe_softmax" in targets(quantize(net, inputs, tosa(PROFILES[0]), **how))

    def case(self, row):
        return Biased(lambda m, x: torch.ops.aten._safe_softmax(row(m, x), -1)).eval(), (scores(),)
