"""A choice between a value and the same value is in the delegate, as the value."""

from typing import ClassVar

import torch
from spelled import Delegated

from safe_arm.quantizer.spellings.equal_choices import drop_equal_choices

INPUTS = tuple(torch.randn(2, 1, 4, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(2))


class TestChoices(Delegated):
    step = staticmethod(drop_equal_choices)
    inputs = INPUTS
    written: ClassVar = {
        "a choice": lambda m, x, y: torch.where(x > 0, y, y) + x,
        "of a smaller value": lambda m, x, y: (lambda z: torch.where(x > 0, z, z))(y[:, :, :1]) + x,
        "a result": lambda m, x, y: (lambda z: torch.where(x > 0, z, z))(y * 2),
    }
    kept: ClassVar = {
        "two values": lambda m, x, y: torch.where(x > 0, y, x),
        "a value and what is equal": lambda m, x, y: torch.where(x > 0, y + x, x + y),
        "two numbers": lambda m, x, y: torch.where(x > 0, 1.0, 1.0),
        "a value and a number": lambda m, x, y: torch.where(x > 0, y, 1.0),
    }
