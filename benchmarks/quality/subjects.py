"""A row of the table before it is measured: a float net, its samples, and the net beside which it is judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor

Sample = tuple[Tensor, ...]


@dataclass(frozen=True)
class Subject:
    """A float net with its samples.

    Attributes:
        model: in evaluation mode.
        draw: gives one sample.
        silenced: the same net without the part that is judged, for a ratio to that part's contribution alone; None if
            the whole output is the signal.
        calibrated: number of calibration samples, and of those that are compared.
    """

    model: nn.Module
    draw: Callable[[torch.Generator], Sample]
    silenced: nn.Module | None = None
    calibrated: int = 6


@dataclass(frozen=True)
class Entry:
    """One row.

    Attributes:
        name: a letter for its group and words, such as ``"b/softmax"``.
        make: gives the net; raises ``LeftOut`` if there is nothing to measure.
        beside: the row that does the same without a mask; its ideal figure is a yardstick too.
    """

    name: str
    make: Callable[[], Subject]
    beside: str = ""


class LeftOut(Exception):  # noqa: N818
    """A row has nothing to measure, for the reason in its text."""


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def normal(*shapes: Sequence[int], scale: float = 1.0, mean: float = 0.0) -> Callable[[torch.Generator], Sample]:
    """Return a function that draws normal values of some shapes."""

    def draw(generator: torch.Generator) -> Sample:
        return tuple(mean + scale * torch.randn(tuple(shape), generator=generator) for shape in shapes)

    return draw


def samples(subject: Subject, seed: int) -> list[Sample]:
    """Return the samples of a seed, always the same ones."""
    generator = torch.Generator().manual_seed(seed)
    return [subject.draw(generator) for _ in range(subject.calibrated)]
