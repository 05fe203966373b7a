"""n - alpha * x is that when it is quantised."""

from typing import ClassVar

import torch
from rewriting import Correcting

from safe_arm.quantizer.spellings.reversed_differences import multiply_subtrahends

INPUTS = (torch.linspace(-1, 1, 24).view(2, 12),)
RULES = {
    "number": lambda m, x: torch.rsub(x, 2.0, alpha=3),
    "fraction": lambda m, x: torch.rsub(x, 2, alpha=0.25),
    "scalar": lambda m, x: torch.rsub(x.sum(), 2.0, alpha=3),
}


class TestDifferences(Correcting):
    step = staticmethod(multiply_subtrahends)
    inputs = INPUTS
    written = RULES
    wrong: ClassVar = {name: RULES[name] for name in ("number", "fraction")}  # It takes alpha for 1.
    stock_is_off = 10
    ours_is_off = 2  # two roundings, of the product and of the difference
    kept: ClassVar = {
        "no factor": lambda m, x: 2.0 - x,
        "of tensors": lambda m, x: torch.rsub(x, x, alpha=3),
        "the right way round": lambda m, x: torch.sub(x, 2.0, alpha=3),
    }
