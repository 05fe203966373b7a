"""A number that ``where`` fills in is a tensor, so that the operator is quantised."""

from typing import ClassVar

import torch
from spelled import Spelling

from safe_arm.quantizer.spellings.scalar_fills import fill_from_tensors

INPUTS = (torch.randn(2, 12, generator=torch.Generator().manual_seed(0)),)


class TestFills(Spelling):
    step = staticmethod(fill_from_tensors)
    inputs = INPUTS
    written: ClassVar = {
        "behind": lambda m, x: torch.where(torch.arange(12) % 2 > 0, x, 0.0),
        "in front": lambda m, x: torch.where(torch.arange(12) % 2 > 0, 0.25, x),
        "an integer": lambda m, x: torch.where(torch.arange(12) % 2 > 0, x, 1),
    }
    kept: ClassVar = {
        "two tensors": lambda m, x: torch.where(torch.arange(12) % 2 > 0, x, x * 2),
        "a mask": lambda m, x: torch.where(x > 0, x, -1e4),
        "not finite": lambda m, x: torch.where(x > 0, x, float("nan")),
        "integers": lambda m, x: torch.where(x > 0, x.to(torch.int32), 1),
    }
