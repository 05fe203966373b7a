"""Grids that are computed from a matrix are layers of it."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from ratios import histogram_ratios
from small import Lambda
from spelled import Delegated
from stubborn import exported

from safe_arm.quantizer.spellings.spellings import spell_out_operators

INPUTS = (torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(0)),)


def turned(m, x):
    """A spatial transformer's grid of an image of 5 x 6."""
    return F.affine_grid(m.linear(x)[:, :2, :3], [2, 4, 5, 6], align_corners=False)


class TestGrids(Delegated):
    """The ranges in stock's graph are on the CPU, and all that is computed of them."""

    inputs = INPUTS
    written: ClassVar = {
        "an image": turned,
        "an image up to its corners": lambda m, x: F.affine_grid(x[:, :2, :3] * 2, [2, 1, 5, 6], align_corners=True),
        "a volume": lambda m, x: F.affine_grid(x[:1, :3, :4] * 2, [1, 2, 3, 5, 6], align_corners=False).flatten(1),
    }
    kept: ClassVar = {
        "doubles": lambda m, x: F.affine_grid(x[:, :2, :3].double(), [2, 1, 5, 6], align_corners=False),
    }


def test_a_dynamic_batch_is_left_alone():
    def forward(m, x):
        return F.affine_grid(x[:, :2, :3], [x.shape[0], 1, 5, 6], align_corners=False)

    model = exported(Lambda(forward), INPUTS, ({0: torch.export.Dim("batch", min=2, max=64)},))
    spell_out_operators(model)
    assert "affine_grid" in str(model.graph)


def test_a_grid_keeps_what_int8_leaves_of_it():
    _, ours = histogram_ratios(lambda m, x: F.affine_grid(x[:, :2, :3], [2, 1, 5, 6], align_corners=False), [INPUTS])
    assert ours > 36
