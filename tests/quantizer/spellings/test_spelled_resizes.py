"""Resizes that no annotator knows are written with operators that one does."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from small import Lambda, image
from spelled import Spelling
from stubborn import exported

from safe_arm.quantizer.spellings.spellings import spell_out_operators

INPUTS = image()


class TestResizes(Spelling):
    inputs = INPUTS
    written: ClassVar = {
        "nearest, by a factor": lambda m, x: F.interpolate(x[0], scale_factor=2),
        "nearest, to a size": lambda m, x: F.interpolate(x[0], size=24),
        "linear, by a factor": lambda m, x: F.interpolate(x[0], scale_factor=2, mode="linear"),
        "linear, to a size": lambda m, x: F.interpolate(x[0], size=16, mode="linear", align_corners=True),
        "bicubic, by a factor": lambda m, x: F.interpolate(x, scale_factor=2, mode="bicubic"),
        "bicubic, by two factors": lambda m, x: F.interpolate(x, scale_factor=(1.5, 0.5), mode="bicubic"),
        "bicubic, to a size": lambda m, x: F.interpolate(x, size=(6, 20), mode="bicubic", align_corners=True),
        "bicubic, smoothed": lambda m, x: F.interpolate(x, size=(4, 4), mode="bicubic", antialias=True),
        "bilinear, smoothed": lambda m, x: F.interpolate(x, scale_factor=(0.5, 0.3), mode="bilinear", antialias=True),
        "nearest centre": lambda m, x: F.interpolate(x, scale_factor=2, mode="nearest-exact"),
        "nearest centre of a sequence": lambda m, x: F.interpolate(x[0], size=24, mode="nearest-exact"),
        "another nearest centre": lambda m, x: F.interpolate(x, scale_factor=0.5, mode="nearest-exact"),
        "another nearest centre of a sequence": lambda m, x: F.interpolate(x[0], size=12, mode="nearest-exact"),
        "nearest centre of other sides": lambda m, x: F.interpolate(x.relu(), size=(13, 1), mode="nearest-exact"),
    }
    kept: ClassVar = {
        "bilinear": lambda m, x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        "a long sequence": lambda m, x: F.interpolate(x.view(1, 1, -1).repeat(1, 1, 5), scale_factor=2, mode="linear"),
    }


@pytest.mark.parametrize("how", [{"mode": "bicubic"}, {"mode": "nearest-exact"}], ids=lambda how: how["mode"])
def test_a_dynamic_size_is_left_alone(how):
    net = Lambda(lambda m, x: F.interpolate(x, size=(6, 20), **how))
    model = exported(net, INPUTS, ({3: torch.export.Dim("width", min=2, max=64)},))
    before = str(model.graph)
    spell_out_operators(model)
    assert str(model.graph) == before


def test_every_second_centre_is_a_slice():
    """An Ethos-U55 has slices, and no choice by an index."""
    model = exported(Lambda(lambda m, x: F.interpolate(x, scale_factor=0.5, mode="nearest-exact")), INPUTS)
    spell_out_operators(model)
    assert "slice" in str(model.graph)
    assert "index_select" not in str(model.graph)
