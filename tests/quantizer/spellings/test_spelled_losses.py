"""Losses and distances that no annotator knows are written with operators that one does."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from spelled import Spelling

INPUTS = tuple(torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(2))


class TestLosses(Spelling):
    inputs = INPUTS
    also = ((INPUTS[0] * 90, INPUTS[1]),)
    written: ClassVar = {
        "squared error": lambda m, x, y: F.mse_loss(x, y) + y,
        "squared errors": lambda m, x, y: F.mse_loss(x, y, reduction="none") + y,
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
        "a loss that int8 costs decibels": lambda m, x, y: torch.ops.aten.smooth_l1_loss(x, y),
        "another distance": lambda m, x, y: F.pairwise_distance(x, y, p=3.0),
    }
