"""The index of an extreme is compared in 32 bits, and the delegate is whole."""

from typing import ClassVar

import pytest
import torch
from lowering import RELEASE
from spelled import Delegated

from safe_arm.quantizer.spellings.compared_indices import compare_in_32_bits

SCORES = (torch.randn(4, 8, generator=torch.Generator().manual_seed(0)),)
EXPERTS = torch.randint(0, 8, (4, 1), generator=torch.Generator().manual_seed(1))


def of_chosen_expert(m, x):
    """A mixture of which one expert is chosen."""
    index = x.argmax(-1)
    result = torch.zeros_like(x)
    for expert in range(2):
        result = result + torch.where((index == expert).unsqueeze(-1), m.linear(x) * (expert + 1), 0.0)
    return result


@pytest.mark.skipif(RELEASE == (1, 4), reason="1.4 delegates no argmax")
class TestComparedIndices(Delegated):
    step = staticmethod(compare_in_32_bits)
    inputs = SCORES
    written: ClassVar = {
        "a chosen expert": of_chosen_expert,
        "an index that is kept": lambda m, x: torch.where(x.argmax(-1, keepdim=True) == 2, x, 0.5),
        "places": lambda m, x: torch.where(x.argmax(-1, keepdim=True) == torch.arange(8), x, 0.0),
        "constants": lambda m, x: torch.where(x.argmin(-1, keepdim=True) != EXPERTS, x, 0.0),
        "behind a place": lambda m, x: torch.where((x.argmax(-1) > 3).unsqueeze(-1), x, 0.0),
        "before a place": lambda m, x: torch.where(x.argmin(0).unsqueeze(0) <= torch.arange(4)[:, None], x, 0.0),
        "cast to floats": lambda m, x: (x.argmax(-1, keepdim=True) == 1).float() * x,
    }
    kept: ClassVar = {
        "floats": lambda m, x: torch.where(x.amax(-1, keepdim=True) == 1.0, x, 0.0),
        "a fraction": lambda m, x: torch.where(x.argmax(-1, keepdim=True) > 1.5, x, 0.0),
        "two indices": lambda m, x: torch.where(x.argmax(-1, keepdim=True) == x.argmin(-1, keepdim=True), x, 0.0),
        "a number of more bits": lambda m, x: torch.where(x.argmax(-1, keepdim=True) < 2**40, x, 0.0),
        "an index without dimensions": lambda m, x: torch.where(x.argmax() == 3, x, 0.0),
        "an index that is computed with": lambda m, x: torch.where(x.argmax(-1, keepdim=True) * 2 == 4, x, 0.0),
    }
