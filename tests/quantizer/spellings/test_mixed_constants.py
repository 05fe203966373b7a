"""Arithmetic of floats and constant integers is in the delegate."""

from typing import ClassVar

import torch
from spelled import Delegated

from safe_arm.quantizer.spellings.constant_spellings import spell_out_with_constants


def columns():
    return torch.arange(6) * 8 + 4


def rows():
    return torch.arange(4).view(4, 1)


def centres(x):
    """The edges of FCOS's boxes: distances from the centres of cells."""
    y, x1 = torch.meshgrid(torch.arange(4) * 8 + 4, columns(), indexing="ij")
    return torch.stack((x1 - x, y - x, x1 + x.sqrt(), y + x), -1)


class TestMixed(Delegated):
    step = staticmethod(spell_out_with_constants)
    inputs = (torch.rand(1, 4, 6, generator=torch.Generator().manual_seed(0)),)
    written: ClassVar = {
        "centres of cells": lambda m, x: centres(x),
        "taken from a constant": lambda m, x: columns() - x,
        "a multiple is taken": lambda m, x: torch.sub(x, rows(), alpha=2),
        "multiplied": lambda m, x: x * rows(),
        "multiplied by a mask": lambda m, x: x * (columns() > 20),
        "divided": lambda m, x: x / columns(),
        "divided by a value": lambda m, x: columns() / (x + 1),
        "the larger": lambda m, x: torch.maximum(x * 4, rows()),
        "the smaller": lambda m, x: torch.minimum(x * 4, rows()),
        "chosen": lambda m, x: torch.where(x > 0.5, x, rows()),
    }
    kept: ClassVar = {
        "floats": lambda m, x: x + columns().float(),
        "a number": lambda m, x: x * 3,
        "integers alone": lambda m, x: columns() * 2,
        "integers of an input": lambda m, x: x + (x > 0.5).to(torch.int64),
    }
