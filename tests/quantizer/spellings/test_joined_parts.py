"""A part that lies in one operand of a concatenation is read from that operand."""

from typing import ClassVar

import torch
from ratios import ratios
from small import image
from spelled import Whole

from safe_arm.quantizer.spellings.joined_parts import read_joined_parts

INPUTS = image()


def joined(x):
    return torch.cat((x.sigmoid(), x, x.exp()), 1)


def decode(m, x):
    """Boxes in pixels beside scores, written one after the other into the scores' tensor, as in YOLOv3 and YOLOv5."""
    y = x.sigmoid()
    y[:, :1] = (y[:, :1] * 2 + 3) * 32
    y[:, 1:2] = (y[:, 1:2] * 2) ** 2 * 90
    y[:, 2] = y[:, 2] * 70
    return y


class TestParts(Whole):
    step = staticmethod(read_joined_parts)
    inputs = INPUTS
    written: ClassVar = {
        "a part of an operand": lambda m, x: joined(x)[:, 5:7] * 2,
        "a whole operand": lambda m, x: joined(x)[:, 4:8] * 2,
        "an element from behind": lambda m, x: joined(x)[:, -1] * 2,
        "a part of a part": lambda m, x: torch.cat((joined(x)[:, 3:], x), 1)[:, 1:3] * 2,
        "one of a joined operand": lambda m, x: torch.cat((x, joined(x)), 1)[:, 8:10] * 2,
        "the last dimension": lambda m, x: torch.cat((x, x.exp()), -1)[..., 9:] * 2,
    }
    kept: ClassVar = {
        "parts of two operands": lambda m, x: joined(x)[:, 3:6] * 2,
        "another dimension": lambda m, x: joined(x)[:, :, 1:3] * 2,
        "every other one": lambda m, x: joined(x)[:, 4:8:2] * 2,
        "a stack": lambda m, x: torch.stack((x, x.exp()), 1)[:, 1] * 2,
    }
    tolerance: ClassVar = {"rtol": 0, "atol": 0}


def test_boxes_that_are_decoded_in_place_keep_their_scores():
    samples = [(torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(seed)),) for seed in range(6)]
    # The borders of a write are those of the part that is written, which no result of one tensor has.
    borders, stock, ours = ratios(decode, samples)
    assert stock < 10 < borders - 2 < ours
