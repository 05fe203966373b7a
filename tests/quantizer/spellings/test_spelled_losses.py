"""Losses and distances that no annotator knows are written with operators that one does."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from ratios import histogram_ratios
from spelled import Spelling

INPUTS = tuple(torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(2))


def pairs(seed):
    """Two signals near each other."""
    signal, rest = torch.randn(2, 1, 3, 64, generator=torch.Generator().manual_seed(seed))
    return signal, signal + 0.3 * rest


SAMPLES = [pairs(seed) for seed in range(12)]


class TestLosses(Spelling):
    inputs = INPUTS
    written: ClassVar = {
        "squared error": lambda m, x, y: F.mse_loss(x, y) + y,
        "squared errors": lambda m, x, y: F.mse_loss(x, y, reduction="none") + y,
        "absolute error": lambda m, x, y: F.l1_loss(x, y) + y,
        "absolute errors": lambda m, x, y: F.l1_loss(x, y, reduction="none") + y,
        "distance": lambda m, x, y: F.pairwise_distance(x, y) + y[..., 0],
        "distance along axes": lambda m, x, y: F.pairwise_distance(x, y, p=1.0, eps=0.5, keepdim=True) + y,
        "distances of all rows": lambda m, x, y: torch.cdist(x[0], y) + y,
        "distances of all rows along axes": lambda m, x, y: torch.cdist(x, y[0], p=1.0) + y,
        "distance of all": lambda m, x, y: torch.dist(x, y) + y,
    }
    kept: ClassVar = {
        "distances of another order": lambda m, x, y: torch.cdist(x, y, p=3.0),
        "distances of rows of a higher rank": lambda m, x, y: torch.cdist(x[None], y[None]),
        "distance of another order": lambda m, x, y: torch.dist(x, y, p=1),
        "a loss that int8 costs decibels": lambda m, x, y: F.triplet_margin_loss(x, y, x * y),
        "a soft margin": lambda m, x, y: F.soft_margin_loss(x, y),
        "a divergence": lambda m, x, y: F.kl_div(x, y),
        "errors of 64 bits": lambda m, x, y: torch.ops.aten.l1_loss(x.double(), y.double()),
        "another distance": lambda m, x, y: F.pairwise_distance(x, y, p=3.0),
    }


def test_ours_is_as_near_as_stock_which_computes_the_loss_in_float():
    stock, ours = histogram_ratios(lambda m, x, y: F.l1_loss(x, y), SAMPLES)
    assert ours > stock - 0.1
