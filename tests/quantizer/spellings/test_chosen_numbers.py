"""Conditions that are computed with are in the delegate."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from lowering import PROFILES, quantize, tosa
from small import Lambda
from spelled import Delegated

from safe_arm.quantizer.spellings.chosen_numbers import choose_numbers

INPUTS = (torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0)),)


def peaks(m, x):
    """CenterNet's: what is no largest value of its surroundings is 0."""
    heat = x.sigmoid()
    return heat * (F.max_pool2d(heat, 3, 1, 1) == heat).float()


class TestNumbers(Delegated):
    step = staticmethod(choose_numbers)
    inputs = INPUTS
    written: ClassVar = {
        "peaks": peaks,
        "the dtype of another": lambda m, x: x * (x > 0.3).type_as(x),
        "to another": lambda m, x: x * (x > 0.3).to(x),
        "a product with a condition": lambda m, x: x.relu() * (x > 0.3),
        "two readers": lambda m, x: (lambda keep: x * keep.float() + keep)(x > 0.3),
        "how many": lambda m, x: (x > 0.3).float().mean((2, 3)),
        "bits of a code": lambda m, x: x + torch.where(x > 0, 1.0, -1.0),
        "a choice and a cast": lambda m, x: x * torch.where(x > 0, 0.5, 2.0) + (x > 0).float(),
        "both": lambda m, x: x + ((x > 0.3) & (x < 0.9)).float(),
    }
    kept: ClassVar = {
        "a cast that is returned": lambda m, x: (x > 0.3).float(),
        "a cast to integers": lambda m, x: (x > 0.3).to(torch.int32) + 1,
        "a cast of integers": lambda m, x: x * x.argmax(1, keepdim=True).float(),
        "a choice of integers": lambda m, x: torch.where(x > 0.3, 2, 1),
        "a choice of an infinite number": lambda m, x: torch.where(x > 0.3, 0.0, -torch.inf),
        "a choice": lambda m, x: torch.where(x > 0.3, x, x * 2),
    }


def test_a_profile_that_casts_keeps_the_cast():
    for profile, number in ((PROFILES[0], 0), ("TOSA-1.0+INT+FP", 1)):
        graph_module = quantize(Lambda(peaks), INPUTS, tosa(profile))
        casts = graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.to.dtype)
        assert len(casts) == number
