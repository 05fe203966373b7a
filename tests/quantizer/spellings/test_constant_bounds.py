"""A value between constant tensors of one number has a domain that ends there."""

from typing import ClassVar

import torch
from ratios import both_ratios
from small import Lambda
from spelled import Whole
from stubborn import exported

from safe_arm.quantizer.spellings.constant_spellings import spell_out_with_constants

LOW, HIGH = torch.tensor(-0.1), torch.tensor([0.3])


def draw(seed=0):
    return (torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(seed)),)


def clamped(m, x):
    return torch.clamp(x, LOW, HIGH) * 3


class TestBounds(Whole):
    step = staticmethod(spell_out_with_constants)
    inputs = draw()
    written: ClassVar = {
        "between two": clamped,
        "above one": lambda m, x: x.clamp(min=LOW) * 2,
        "below one": lambda m, x: x.clamp(max=HIGH) * 2,
        "below an integer": lambda m, x: x.clamp(max=torch.tensor(1)) * 2,
    }
    kept: ClassVar = {
        "bounds for each column": lambda m, x: torch.clamp(x, -torch.arange(1.0, 7.0), torch.arange(1.0, 7.0)),
        "a bound of each row": lambda m, x: torch.clamp(x, LOW, x.mean(-1, keepdim=True).abs()),
        "a value that is broadcast": lambda m, x: torch.clamp(x[..., :1], torch.zeros(2, 4, 6)),
    }


def test_stock_loses_what_the_bounds_cut_off():
    stock, ours = both_ratios(clamped, [draw(seed) for seed in range(8)])
    assert stock < 35
    assert ours > 45


def test_a_dynamic_size_is_no_obstacle():
    model = exported(Lambda(clamped), draw(), ({0: torch.export.Dim("batch", min=1, max=8)},))
    spell_out_with_constants(model)
    assert not [node for node in model.graph.nodes if node.target is torch.ops.aten.clamp.Tensor]
