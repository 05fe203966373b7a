"""The tables of what is written with constants are used for values of 32 bits and of fixed sizes."""

from typing import ClassVar

import torch
from rewriting import Rewriting
from small import Lambda
from stubborn import exported

from safe_arm.quantizer.spellings.constant_spellings import spell_out_with_constants

INPUTS = (torch.randn(4, 6, generator=torch.Generator().manual_seed(0)), torch.tensor([[2, 0], [1, 1]]))
PLACES = [3, 0, 5]


class TestConstantSpellings(Rewriting):
    step = staticmethod(spell_out_with_constants)
    inputs = INPUTS
    written: ClassVar = {
        "an index": lambda m, x, k: x[:, PLACES],
        "a scatter": lambda m, x, k: torch.zeros(2, 6).index_add(0, torch.tensor([0, 1, 1, 0]), x),
        "an index of what is scattered": lambda m, x, k: torch.zeros(4, 6).index_add(0, torch.arange(4), x)[:, PLACES],
        "a scatter in place": lambda m, x, k: x.relu().index_add_(0, torch.tensor([1, 0, 2, 2]), x),
    }
    kept: ClassVar = {
        "an index of integers": lambda m, x, k: k[:, [1, 0]],
        "a scatter of integers": lambda m, x, k: torch.zeros_like(k).index_add(0, torch.tensor([0, 1]), k),
        "an index of doubles": lambda m, x, k: x.double()[:, PLACES],
    }


def test_dynamic_sizes_are_left_alone():
    net = Lambda(lambda m, x: x[:, PLACES])
    model = exported(net, INPUTS[:1], ({0: torch.export.Dim("rows", min=2, max=64)},))
    before = str(model.graph)
    spell_out_with_constants(model)
    assert str(model.graph) == before
