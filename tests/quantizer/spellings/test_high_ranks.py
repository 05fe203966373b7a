"""Permutations of more than six dimensions are written with fewer, between the reshapes around them."""

import itertools
import random
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes, graph_of
from lowering import PROFILES, edge_program, min_max, quantize, targets, tosa
from small import Lambda
from spelled import Whole
from stubborn import exported

from safe_arm.quantizer.spellings.high_ranks import lower_ranks, steps

SEVEN = (2, 2, 4, 2, 4, 2, 4)
INPUTS = (torch.randn(2, 8, 8, 8, generator=torch.Generator().manual_seed(0)),)


def windows(x, batch=2):
    """ScalableViT's: heads and windows of an image as batches of an attention, `(b x y) h (w1 w2) d`."""
    parts = x.reshape(batch, 2, 4, 2, 4, 2, 4).permute(0, 3, 5, 1, 4, 6, 2)
    return parts.reshape(batch * 4, 2, 16, 4)


def image_of(x, batch=2):
    """Windows back as an image."""
    parts = x.reshape(batch, 2, 2, 2, 4, 4, 4).permute(0, 3, 6, 1, 4, 2, 5)
    return parts.reshape(batch, 8, 8, 8)


def convex(x):
    """RAFT's convex upsampling: each pixel is a mean of nine, whose weights are a softmax."""
    scores = (x[:1, :, :6, :6] * 3).repeat(1, 5, 1, 1)[:, :36]
    weights = torch.softmax(scores.view(1, 1, 9, 2, 2, 6, 6), 2)
    nine = F.unfold(x[:1, :2, :6, :6], [3, 3], padding=1).view(1, 2, 9, 1, 1, 6, 6)
    return torch.sum(weights * nine, dim=2)


#: No two have an operator on the same values: stock merges those behind different views.
WRITTEN = {
    "windows of heads": lambda m, x: torch.relu(windows(torch.sigmoid(x))),
    "windows of heads and back": lambda m, x: image_of(torch.exp(windows(x))),
    "one image": lambda m, x: torch.relu(windows(torch.sigmoid(x[:1]), 1)),
    "all seven reversed": lambda m, x: torch.tanh(x.reshape(SEVEN).permute(6, 5, 4, 3, 2, 1, 0).flatten(1)),
    "a transposition": lambda m, x: torch.abs(x.reshape(SEVEN).transpose(1, -2).reshape(2, 8, 8, 8)),
    "a convex upsampling": lambda m, x: convex(x),
    "a sum along two": lambda m, x: (x[:1].reshape(1, 2, 4, 2, 4, 2, 4) - 1).sum([1, -1]).flatten(1) * 2,
    "no permutation": lambda m, x: torch.tanh(torch.sigmoid(x).reshape(2, 2, 4, 2, 4, 2, 4).flatten(2)),
}


def ranks(model):
    values = [node.meta.get("val") for node in model.graph.nodes]
    return [value.dim() for value in values if isinstance(value, torch.Tensor)]


@pytest.mark.parametrize("name", WRITTEN)
def test_stock_keeps_seven_dimensions(name):
    how = {"quantizer_class": TOSAQuantizer, "config": min_max()}
    program = edge_program(quantize(Lambda(WRITTEN[name]), INPUTS, tosa(PROFILES[0]), **how), INPUTS)
    assert max(ranks(program.graph_module)) == 7
    assert "view_copy" in targets(program.graph_module)


class TestRanks(Whole):
    step = staticmethod(lower_ranks)
    lowered = ("windows of heads and back", "a convex upsampling", "one image", "all seven reversed")
    inputs = INPUTS
    written = WRITTEN
    kept: ClassVar = {
        "six dimensions": lambda m, x: x.reshape(2, 8, 2, 4, 2, 4).permute(0, 2, 4, 1, 3, 5).flatten(1),
        "a product without ones": lambda m, x: (x.reshape(SEVEN) * x.reshape(SEVEN)).flatten(1),
        "a sum of the only one": lambda m, x: x[:1].reshape(1, 2, 4, 2, 4, 2, 4).sum(0, keepdim=True),
        "an operator on seven": lambda m, x: torch.relu(x.reshape(SEVEN)).permute(0, 3, 5, 1, 4, 6, 2).flatten(1),
        "a reader of seven": lambda m, x: x.reshape(SEVEN).permute(0, 3, 5, 1, 4, 6, 2).amax(6),
        "an output of seven": lambda m, x: x.reshape(SEVEN).permute(0, 3, 5, 1, 4, 6, 2),
    }
    tolerance: ClassVar = {"rtol": 0, "atol": 0}

    def test_no_value_has_more_than_six_dimensions(self, written):
        model = graph_of(written, *INPUTS)
        lower_ranks(model)
        assert max(ranks(model)) <= 6


def test_a_dynamic_size_is_left_alone():
    def forward(m, x):
        return x.reshape(x.shape[0], 2, 4, 2, 4, 2, 4).permute(0, 3, 5, 1, 4, 6, 2).flatten(1)

    batch = {0: torch.export.Dim("batch", min=2, max=8)}
    assert not changes(lower_ranks, exported(Lambda(forward), INPUTS, (batch,)))


def steps_of(x, order):
    """Check a permutation in steps, and return how many they are."""
    result, written = x, steps(list(x.shape), order)
    for shape, step_order in written:
        assert len(shape) <= 6
        result = result.reshape(shape).permute(step_order)
    assert torch.equal(result.flatten(), x.permute(order).flatten())
    return len(written)


def test_every_permutation_of_seven_takes_two_steps_at_most():
    x = torch.arange(2**7).reshape([2] * 7)
    orders = list(itertools.permutations(range(7)))
    for order in random.Random(0).sample(orders, 200):
        assert steps_of(x, list(order)) <= 2


@pytest.mark.parametrize("rank", [8, 9, 10])
def test_higher_ranks_and_sizes_of_one(rank):
    draw = random.Random(rank)
    for _ in range(20):
        sizes = [2] * rank
        for place in sorted(draw.sample(range(rank + 2), 2)):
            sizes.insert(place, 1)
        steps_of(torch.arange(2**rank).reshape(sizes), draw.sample(range(rank + 2), rank + 2))
