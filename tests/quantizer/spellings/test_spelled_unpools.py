"""Unpooling by the maxima of windows is a choice in each place of a window, and is one delegate with the rest."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from lowering import RELEASE
from spelled import Delegated
from stubborn import exported

from safe_arm.core.island import op_name
from safe_arm.quantizer.spellings.spelled_unpools import write_unpools

INPUTS = (torch.randn(2, 3, 8, 12, generator=torch.Generator().manual_seed(1)),)
TIED = (INPUTS[0].round(),)


def unpooled(x, window, *, factor=1.0):
    maxima, indices = F.max_pool2d(x, window, return_indices=True)
    return F.max_unpool2d(maxima * factor, indices, window, output_size=x.shape[-2:])


def twice(m, x):
    """As SegNet has it, of three layers."""
    first, outer = F.max_pool2d(x, 2, return_indices=True)
    second, inner = F.max_pool2d(first.sigmoid(), 2, return_indices=True)
    return F.max_unpool2d(F.max_unpool2d(second * 2, inner, 2).tanh(), outer, 2)


class TestUnpools(Delegated):
    step = staticmethod(write_unpools)
    inputs = INPUTS
    also = (TIED,)
    written: ClassVar = {
        "windows of 2": lambda m, x: unpooled(x, 2, factor=0.5),
        "windows that are no squares": lambda m, x: unpooled(x, (4, 3)),
        "one in the other": twice,
    }
    lowered = ("windows that are no squares", "one in the other")
    gone = ("aten.max_unpool2d", "aten.max_pool2d_with")
    kept: ClassVar = {
        "windows that overlap": lambda m, x: F.max_unpool2d(*F.max_pool2d(x, 3, 1, return_indices=True), 3, 1),
        "windows that leave something over": lambda m, x: unpooled(x, 5),
        "indices that are returned": lambda m, x: F.max_pool2d(x, 2, return_indices=True)[1],
        "a pool without indices": lambda m, x: F.max_pool2d(x, 2),
    }

    @pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 delegates no argmax")
    def test_ours_is_one_exact_delegate(self, proven):
        super().test_ours_is_one_exact_delegate(proven)


def test_a_pool_whose_indices_nothing_reads_gives_none():
    class Values(torch.nn.Module):
        def forward(self, x):
            return F.max_pool2d(x, 2, return_indices=True)[0]

    model = exported(Values(), INPUTS)
    wanted = model(*INPUTS)
    write_unpools(model)
    assert [op_name(each) for each in model.graph.nodes if each.op == "call_function"] == ["aten::max_pool2d"]
    assert torch.equal(model(*INPUTS), wanted)
