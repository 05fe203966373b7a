"""A value that arithmetic broadcasts is not expanded first."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, edge_program, min_max, quantize, targets, tosa
from small import Lambda, image
from spelled import Whole

from safe_arm.quantizer.spellings.plain_broadcasts import broadcast_plainly

INPUTS = image()


def gate(x):
    return torch.sigmoid(x.amax((2, 3), keepdim=True))


BROADCAST = {
    "product": lambda m, x: x * gate(x).expand(1, 4, 8, 8),
    "sum": lambda m, x: gate(x).expand(1, 4, 8, 8) + x,
    "difference": lambda m, x: x - gate(x).expand(-1, -1, 8, 8),
    "quotient": lambda m, x: x / gate(x).expand(1, 4, 8, 8),
}


@pytest.mark.parametrize("name", BROADCAST)
def test_stock_keeps_the_expansion(name):
    how = {"quantizer_class": TOSAQuantizer, "config": min_max()}
    quantised = quantize(Lambda(BROADCAST[name]), INPUTS, tosa(PROFILES[0]), **how)
    assert "expand_copy" in targets(edge_program(quantised, INPUTS).graph_module)


class TestBroadcasts(Whole):
    step = staticmethod(broadcast_plainly)
    inputs = INPUTS
    written = BROADCAST
    gone = ("expand",)
    kept: ClassVar = {
        "two that are expanded alike": lambda m, x: gate(x).expand(1, 4, 8, 8) * gate(-x).expand(2, 4, 8, 8),
        "one with itself": lambda m, x: gate(x).expand(1, 4, 8, 8).mul(gate(x).expand(1, 4, 8, 8)[..., :1]),
        "a value that is concatenated": lambda m, x: torch.cat((x, gate(x).expand(1, 4, 8, 8)), 1),
        "a number": lambda m, x: gate(x).expand(1, 4, 8, 8) * 2,
    }
    tolerance: ClassVar = {"rtol": 0, "atol": 0}
