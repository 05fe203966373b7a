"""Masks that are inputs leave the domain of the scores to the scores, too."""

import math
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes
from lowering import PROFILES, lower_exactly, lower_in_part, quantize, tosa
from masked import ALLOWED, LENGTH, LOWEST, Masked, additive, heads, off, padding, scores, softmax_of
from rewriting import Rewriting
from stubborn import exported

from safe_arm.quantizer.masks.runtime_masks import mask_at_run_time

KEEP = padding(8, 5)
AT = torch.tensor([4], dtype=torch.int32)
SPELLINGS = {
    "fill": (lambda m, x, keep: x.masked_fill(~keep, LOWEST), KEEP),
    "where": (lambda m, x, keep: torch.where(keep, x, -1e9), KEEP),
    "where-full": (lambda m, x, keep: torch.where(keep, x, -9e15 * torch.ones_like(x)), KEEP),
    "where-zeros": (lambda m, x, keep: torch.where(keep, x, torch.zeros_like(x) - 9e15), KEEP),
    "where-not": (lambda m, x, hide: torch.where(hide, -1e9, x), ~KEEP),
    "added": (lambda m, x, mask: x + mask, additive(LOWEST, KEEP)),
    "added-1e4": (lambda m, x, mask: mask + x, additive(-1e4, KEEP)),
    "multiplied": (lambda m, x, keep: x + (1 - keep) * LOWEST, KEEP.float()),
    "moved": (lambda m, x, keep: x + ((1 - keep) * -1e4)[:, None, None], KEEP[:, 0, 0].float()),
    "chosen": (lambda m, x, keep: x + torch.where(keep, 0.0, LOWEST), KEEP),
    "row": (lambda m, x, at: x + (m.low * 1e5)[at][None, None], AT),
    "row-infinite": (lambda m, x, at: x + m.infinite.index_select(0, at), AT),
}
EXACT = ("fill", "added", "multiplied", "row")
#: Where the rows of a table keep a score.
ROW = ALLOWED[4].expand(2, 1, 1, LENGTH)
#: A row that is masked as a whole.
WHOLE = {"fill": padding(0, 5), "where": padding(0, 5), "added": additive(LOWEST, padding(0, 5))}


def case_of(name):
    rule, mask = SPELLINGS[name]
    return softmax_of(rule), (scores(), mask)


@pytest.mark.parametrize("name", EXACT)
def test_stock_leaves_the_scores_a_few_codes(name):
    net, inputs = case_of(name)
    quantised = quantize(net, inputs, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    # A mask that is filled in becomes -256.
    assert off(quantised(*inputs), net(*inputs)) > (60 if name in ("added", "multiplied") else 20)


@pytest.mark.parametrize("name", SPELLINGS)
def test_ours_rounds_scores_alone(name):
    net, inputs = case_of(name)
    result = quantize(net, inputs, tosa(PROFILES[0]))(*inputs)
    assert off(result, net(*inputs)) <= 8
    kept = ROW if name.startswith("row") else KEEP
    assert (result.masked_select(~kept) == 0).all()


def test_a_mask_of_one_head_may_be_as_large_as_the_scores():
    net = softmax_of(lambda m, x, mask: x @ x.mT * 0.03 + mask)
    keep = KEEP[:1].expand(1, 1, LENGTH, LENGTH)
    inputs = scores()[:1, :1], additive(-math.inf, keep)
    result = quantize(net, inputs, tosa(PROFILES[0]))(*inputs)
    assert off(result, net(*inputs)) <= 8
    assert (result.masked_select(~keep) == 0).all()


@pytest.mark.parametrize("profile", [*PROFILES, "TOSA-1.0+INT+u55"])
@pytest.mark.parametrize("name", EXACT)
def test_a_delegate_is_exact(name, profile):
    net, inputs = case_of(name)
    quantised = quantize(net, inputs, tosa(profile))
    # It has no where and no gather.
    lowered = lower_in_part if name in ("fill", "row") and profile.endswith("u55") else lower_exactly
    lowered(quantised, tosa(profile), inputs)


@pytest.mark.parametrize("name", WHOLE)
def test_a_row_that_is_masked_as_a_whole_is_uniform(name):
    net, (x, _) = case_of(name)
    result = quantize(net, (x, WHOLE[name]), tosa(PROFILES[0]))(x, WHOLE[name])
    assert off(result[0], torch.full_like(result[0], 1 / LENGTH)) <= 1.5
    assert off(result[1], net(x, WHOLE[name])[1]) <= 8


def test_a_mask_that_was_not_calibrated_masks():
    net, (x, _) = case_of("added")
    quantised = quantize(net, (x, torch.zeros(2, 1, 1, LENGTH)), tosa(PROFILES[0]))
    mask = SPELLINGS["added"][1]
    result = quantised(x, mask)
    assert (result.masked_select(~KEEP) == 0).all()
    assert off(result, net(x, mask)) <= 8


def test_every_row_of_a_table_masks():
    net, (x, at) = case_of("row")
    quantised = quantize(net, (x, at), tosa(PROFILES[0]))
    for row in range(LENGTH):
        inputs = (x, torch.full_like(at, row))
        result = quantised(*inputs)
        assert off(result, net(*inputs)) <= 16  # The domain of the scores is that of the row it was calibrated on.
        assert (result[..., row + 1 :] == 0).all()


def test_layers_share_what_a_mask_adds():  # a clamp of the mask, one of what it keeps, one of each sum
    def rule(m, x, mask):
        return (x + mask).softmax(-1) + (x * 0.5 + mask).softmax(-1)

    model = exported(Masked(rule).eval(), (scores(), SPELLINGS["added"][1]))
    mask_at_run_time(model)
    assert len(model.graph.find_nodes(op="call_function", target=torch.ops.aten.clamp.default)) == 4


def test_attention_takes_both_kinds_of_masks():
    def rule(m, mask, *qkv):
        return F.scaled_dot_product_attention(*qkv, attn_mask=mask)

    keep = KEEP[:1].expand(1, 1, LENGTH, LENGTH).contiguous()
    for mask in (keep, additive(LOWEST, keep)):
        inputs = (mask, *heads())
        net = Masked(rule).eval()
        quantised = quantize(net, inputs, tosa(PROFILES[0]))
        expected = net(*inputs)
        assert float((quantised(*inputs) - expected).abs().max()) < 0.03 * float(expected.abs().max())
        hidden = mask.clone()
        hidden[..., 2, :] = False if mask.dtype == torch.bool else LOWEST
        assert (quantised(hidden, *inputs[1:])[..., 2, :] == 0).all()


class TestMasks(Rewriting):
    step = staticmethod(mask_at_run_time)
    written = SPELLINGS
    kept: ClassVar = {
        "a multiple that is added": (lambda m, x, y: x + y * 2, scores(1)),
        "an input that is as large": (lambda m, x, y: x + y, scores(1)),
        "a bias of several heads": (lambda m, x, y: x @ x.mT * 0.03 + y, scores(1)),
        "a multiple of the scores": (lambda m, x, y: x * 2 + y, scores(1)),
        "0 that is chosen": (lambda m, x, y: torch.where(y > 0, x, 0.0), scores(1)),
        "a sum": (lambda m, x, y: x.masked_fill(m.allowed, -1e4) + y.sum(), scores(1)),
        "a product": (lambda m, x, y: x * y, scores(1)),
        "a row of biases": (lambda m, x, at: x + (m.low * 1e-3)[at], AT),
        "a row of biases and a mask": (lambda m, x, at: x + (m.low - 1)[at], AT),
    }

    def case(self, row):
        rule, mask = row
        return softmax_of(rule), (scores(), mask)


def test_a_bias_that_is_an_input_is_added_once():
    net, (x, _) = case_of("added")
    model = exported(net, (x, torch.zeros(2, 1, 1, LENGTH)))
    mask_at_run_time(model)
    bias = scores(3, 2.0, (2, 1, 1, LENGTH))
    torch.testing.assert_close(model(x, bias), net(x, bias))


def test_a_product_that_others_read_stays_what_it_is():
    def rule(m, x, keep):
        mask = (1 - keep) * LOWEST
        return (x + mask).softmax(-1), mask

    net = Masked(rule).eval()
    inputs = (scores(), KEEP.float())
    model = exported(net, inputs)
    assert changes(mask_at_run_time, model)
    torch.testing.assert_close(model(*inputs), net(*inputs))
