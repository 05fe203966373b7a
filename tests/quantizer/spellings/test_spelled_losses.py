"""Losses and distances that no annotator knows are written with operators that one does."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from ratios import histogram_ratios
from small import Lambda
from spelled import Spelling
from stubborn import exported

from safe_arm.quantizer.spellings.spellings import spell_out_operators

INPUTS = tuple(torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(2))


def pairs(seed):
    """Two signals near each other."""
    signal, rest = torch.randn(2, 1, 3, 64, generator=torch.Generator().manual_seed(seed))
    return signal, signal + 0.3 * rest


SAMPLES = [pairs(seed) for seed in range(12)]


class TestLosses(Spelling):
    inputs = INPUTS
    also = ((INPUTS[0] * 90, INPUTS[1]),)
    written: ClassVar = {
        "squared error": lambda m, x, y: F.mse_loss(x, y) + y,
        "squared errors": lambda m, x, y: F.mse_loss(x, y, reduction="none") + y,
        "absolute error": lambda m, x, y: F.l1_loss(x, y) + y,
        "absolute errors": lambda m, x, y: F.l1_loss(x, y, reduction="none") + y,
        "Huber loss": lambda m, x, y: F.huber_loss(x, y, delta=0.5) + y,
        "Huber losses": lambda m, x, y: F.huber_loss(x, y, reduction="none") + y,
        "sum of Huber losses": lambda m, x, y: F.huber_loss(x, y, reduction="sum") + y,
        "smooth loss": lambda m, x, y: F.smooth_l1_loss(x, y, beta=0.2) + y,
        "smooth losses": lambda m, x, y: F.smooth_l1_loss(x, y, reduction="none") + y,
        "a smooth loss without a square": lambda m, x, y: F.smooth_l1_loss(x, y, beta=0.0) + y,
        "soft margin": lambda m, x, y: F.soft_margin_loss(0.05 * x, y) + y,
        "sum of soft margins": lambda m, x, y: F.soft_margin_loss(0.05 * x, y, reduction="sum") + y,
        "cross entropy of logits": lambda m, x, y: F.binary_cross_entropy_with_logits(x, y) + y,
        "margin ranking": lambda m, x, y: F.margin_ranking_loss(x, y, y.flip(-1), 0.3) + y,
        "distance": lambda m, x, y: F.pairwise_distance(x, y) + y[..., 0],
        "distance along axes": lambda m, x, y: F.pairwise_distance(x, y, p=1.0, eps=0.5, keepdim=True) + y,
        "distances of all rows": lambda m, x, y: torch.cdist(x, y) + y,
        "distances of all rows along axes": lambda m, x, y: torch.cdist(x, y[0], p=1.0) + y,
        "distance of all": lambda m, x, y: torch.dist(x, y) + y,
    }
    kept: ClassVar = {
        "distances of another order": lambda m, x, y: torch.cdist(x, y, p=3.0),
        "distances of rows of a higher rank": lambda m, x, y: torch.cdist(x[None], y[None]),
        "distance of another order": lambda m, x, y: torch.dist(x, y, p=1),
        "a loss that int8 costs decibels": lambda m, x, y: F.triplet_margin_loss(x, y, x * y),
        "a cross entropy with weights": lambda m, x, y: F.binary_cross_entropy_with_logits(x, y, weight=y),
        "a divergence": lambda m, x, y: F.kl_div(x, y),
        "errors of 64 bits": lambda m, x, y: F.l1_loss(x.double(), y.double()),
        "another distance": lambda m, x, y: F.pairwise_distance(x, y, p=3.0),
    }


#: By name, a loss, and how many dB ours is off the float loss of inputs of 8 bits at most.
LEFT_FLOAT = {
    "absolute error": (lambda m, x, y: F.l1_loss(x, y), 0.1),
    "Huber loss": (lambda m, x, y: F.huber_loss(x, y), 1.0),
    "smooth loss": (lambda m, x, y: F.smooth_l1_loss(x, y, beta=0.5), 0.1),
    "soft margin": (lambda m, x, y: F.soft_margin_loss(x, y), 4.5),
}


@pytest.mark.parametrize(("rule", "most"), LEFT_FLOAT.values(), ids=LEFT_FLOAT)
def test_ours_is_near_stock_s_which_computes_the_loss_in_float(rule, most):
    stock, ours = histogram_ratios(rule, SAMPLES)
    assert ours > stock - most


def test_a_profile_with_floats_computes_the_loss_in_float():
    kept = Lambda(LEFT_FLOAT["Huber loss"][0])
    model = exported(kept, INPUTS)
    spell_out_operators(model, keeps_costly=True)
    assert "huber_loss" in str(model.graph)
