"""A mask of -1e9 in front of a maximum or a sigmoid is one that can be rescaled, and the delegate is whole."""

from typing import ClassVar

import torch
from ratios import ours_exactly, quantised, ratio
from rewriting import Rewriting
from stubborn import quantizer_of

from safe_arm.quantizer import ordered_steps
from safe_arm.quantizer.masks.near_masks import bring_masks_near

X = torch.linspace(-3, 3, 96).view(1, 12, 8)
KEEP = (torch.arange(12) % 3 < 2).float().view(1, 12, 1)
LOW = torch.finfo(torch.float32).min
HIDDEN = torch.zeros(1, 12, 1).masked_fill(KEEP == 0, LOW)


class TestMasks(Rewriting):
    step = staticmethod(bring_masks_near)
    inputs = (X, KEEP)
    written: ClassVar = {
        "a multiple": lambda m, x, keep: (x + (1 - keep) * -1e9).amax(1),
        "the least number": lambda m, x, keep: (x + ((1 - keep) * LOW).expand(1, 12, 8)).sigmoid(),
        "a constant": lambda m, x, keep: (x + HIDDEN).amax(1),
        "numbers that are chosen": lambda m, x, keep: (x + torch.where(keep > 0, 0.0, -1e9)).relu(),
        "numbers that are filled in": lambda m, x, keep: (x + (keep * 0).masked_fill(keep == 0, -1e9)).argmax(1),
    }
    kept: ClassVar = {
        "a number that is near": lambda m, x, keep: (x + (1 - keep) * -1e4).amax(1),
        "a minimum": lambda m, x, keep: (x + (1 - keep) * -1e9).amin(1),
        "a sum that is a result": lambda m, x, keep: x + (1 - keep) * -1e9,
        "a mask that is a result": lambda m, x, keep: ((x + (mask := (1 - keep) * -1e9)).amax(1), mask),
        "a mask that is a factor": lambda m, x, keep: ((x + (y := (1 - keep) * -1e9)).amax(1), (x * y).relu()),
        "a sine": lambda m, x, keep: (x + (1 - keep) * -1e9).sin(),
        "a high number": lambda m, x, keep: (x + (1 - keep) * 1e9).sigmoid(),
    }


def both(m, x, keep):
    return (x * 2 - (1 - keep) * 1e9).amax(1), (x * 2 + (1 - keep) * LOW).sigmoid()


def test_the_one_delegate_is_exact():
    ours_exactly(both, [(X.roll(shift, 1), KEEP) for shift in range(4)])


def test_without_it_nothing_is_left(monkeypatch):
    def rule(m, x, keep):
        return both(m, x, keep)[0]

    samples = [(X, KEEP)]
    assert ratio(quantised(rule, quantizer_of(), samples), rule, samples) > 35
    steps = [step for step in ordered_steps.BEFORE_PASSES if step is not bring_masks_near]
    monkeypatch.setattr(ordered_steps, "BEFORE_PASSES", tuple(steps))
    assert ratio(quantised(rule, quantizer_of(), samples), rule, samples) < 1
