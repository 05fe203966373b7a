"""Compare a quantised graph's outputs with the float net's, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from safe_arm.core.differences import BEYOND
from safe_arm.core.float_comparison import OutputFidelity
from safe_arm.core.unit_accuracy import decibel


@dataclass
class Fidelity:
    """One output, compared on one sample after the other.

    Attributes:
        name: what the report calls it.
    """

    name: str
    _signal: float = 0.0
    _noise: float = 0.0
    _equal: int = 0
    _count: int = 0
    _ratios: list[float] = field(default_factory=list)
    _shares: list[float] = field(default_factory=list)

    def add(self, actual: Tensor, expected: Tensor) -> None:
        """Compare one sample's output; where the float net gives the number of a mask there is nothing to compare."""
        if expected.is_floating_point() and actual.shape == expected.shape:
            finite = expected.abs() < BEYOND
            actual, expected = actual[finite].double(), expected[finite].double()
            signal = float(expected.square().sum())
            noise = float((actual - expected).square().sum())
            self._signal += signal
            self._noise += noise
            self._ratios.append(decibel(signal, noise))
            return
        equal = 0
        if actual.shape == expected.shape:
            equal = int((actual == expected).sum())
        self._equal += equal
        self._count += expected.numel()
        self._shares.append(_share(equal, expected.numel()))

    def result(self) -> OutputFidelity:
        """Return the ratio of all samples together, and the worst of one."""
        if self._ratios:
            worst = min(self._ratios)
            sample = self._ratios.index(worst)
            ratio = decibel(self._signal, self._noise)
            return OutputFidelity(self.name, ratio, worst, sample)
        if not self._shares:
            return OutputFidelity(self.name)
        least = min(self._shares)
        sample = self._shares.index(least)
        share = _share(self._equal, self._count)
        return OutputFidelity(self.name, None, None, sample, share, least)


def _share(equal: int, count: int) -> float:
    return equal / count if count else 1.0


def compared(
    names: Sequence[str],
    actual: Sequence[Sequence[object]],
    expected: Sequence[Sequence[object]],
) -> tuple[OutputFidelity, ...]:
    """Compare the outputs of some samples.

    Args:
        names: of the outputs.
        actual, expected: for each sample the outputs of the quantised graph and of the float net.
    """
    outputs = [Fidelity(name) for name in names]
    with torch.no_grad():
        for ours, theirs in zip(actual, expected, strict=True):
            for output, one, other in zip(outputs, ours, theirs, strict=True):
                if isinstance(one, Tensor) and isinstance(other, Tensor):
                    output.add(one, other)
    return tuple(output.result() for output in outputs)
