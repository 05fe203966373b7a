"""The parts of a layer that are of very different sizes have domains of their own."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from ratios import both_ratios, exactly_on
from spelled import Whole

from safe_arm.quantizer.spellings.parted_layers import part_layers

_GENERATOR = torch.Generator().manual_seed(0)
CAMERA = torch.tensor([[200.0, 0.0, 80.0], [0.0, 200.0, 60.0], [0.0, 0.0, 1.0]])
TURN = torch.tensor([[0.8, -0.6, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])


@pytest.fixture(autouse=True)
def same_values():
    """Each test draws the same values, whichever ran before it."""
    _GENERATOR.manual_seed(0)


def points():
    """Points before a camera, at a depth of some metres."""
    x = torch.randn(1, 32, 3, generator=_GENERATOR)
    return (x * torch.tensor([2.0, 1.5, 0.8]) + torch.tensor([0.0, 0.0, 6.0]),)


POINTS = [points() for _ in range(8)]


def sliced(m, x):
    pixels = x @ CAMERA.T
    return pixels[..., :2] / pixels[..., 2:]


def selected(m, x):
    pixels = F.linear(x, CAMERA)
    return torch.stack((pixels[:, :, 0] / pixels[:, :, 2], pixels[:, :, 1] / pixels[:, :, 2]), -1)


def unbound(m, x):
    across, down, depth = (x @ CAMERA.T).unbind(-1)
    return torch.stack((across / depth, down / depth), -1)


def of_a_point(m, x):
    pixels = x[0, 0] @ CAMERA.T
    return pixels[:2] / pixels[2:] + x[..., :2]


class TestCameras(Whole):
    step = staticmethod(part_layers)
    inputs = POINTS[0]
    tolerance: ClassVar = {"rtol": 1e-5, "atol": 1e-4}
    written: ClassVar = {"sliced": sliced, "selected": selected, "unbound": unbound, "of a point": of_a_point}
    kept: ClassVar = {
        "of one size": lambda m, x: (lambda turned: turned[..., :2] / turned[..., 2:])(x @ TURN.T),
        "read as a whole": lambda m, x: (lambda pixels: pixels[..., 2:] + pixels)(x @ CAMERA.T),
        "parts of points": lambda m, x: (lambda pixels: pixels[:, :2] + pixels[:, 2:4])(x @ CAMERA.T),
        "by what is computed": lambda m, x: (lambda pixels: pixels[..., :2] * pixels[..., 2:])(x @ x[:, :3]),
        "with a bias": lambda m, x: F.linear(x, CAMERA, CAMERA[0])[..., :2],
        "one part": lambda m, x: (x @ CAMERA.T)[..., 2:],
        "many": lambda m, x: sum((x @ F.pad(CAMERA, (0, 0, 0, 6)).T).unbind(-1)),
    }


@pytest.mark.parametrize("rule", [sliced, selected, unbound])
def test_stock_loses_the_depth_and_ours_does_not(rule):
    of_stock, ours = both_ratios(rule, POINTS)
    assert of_stock < 15
    assert ours > 35


def test_an_ethos_u_computes_it_exactly():
    exactly_on("ethos-u85-256", sliced, POINTS)
