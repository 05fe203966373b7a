"""Statistics of one input during calibration, from at most some 65,000 values of each sample."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

#: Values of a sample that are looked at for its percentiles, about.
_VALUES = 2**16
#: The share of a sample's values that counts as ordinary; at least so many of the largest ones do not.
_ORDINARY = 0.999
_LARGEST = 3
#: Number of values below which all values of a sample are ordinary.
_FEW = 32


@dataclass
class InputStatistics:
    """The range and magnitudes of one input.

    Attributes:
        low, high: the bounds of all its values.
        magnitudes: of each sample the magnitude that 99.9 % of its values other than 0 do not exceed.
        varied: whether the values other than 0 have different magnitudes; those of a mask or of one-hots have not.
    """

    low: float
    high: float
    magnitudes: list[float] = field(default_factory=list)
    varied: bool = False

    @classmethod
    def of(cls, sample: Tensor) -> InputStatistics:
        """Return the statistics of a first sample."""
        low, high = map(float, torch.aminmax(sample))
        found = cls(low, high)
        found.add(sample)
        return found

    def add(self, sample: Tensor) -> None:
        """Add a sample that has values."""
        low, high = map(float, torch.aminmax(sample))
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._add_magnitude(sample)

    @property
    def ordinary(self) -> float | None:
        """The magnitude that the ordinary values of half the samples do not exceed; None if all values are 0."""
        if not self.magnitudes:
            return None
        return sorted(self.magnitudes)[(len(self.magnitudes) - 1) // 2]

    def _add_magnitude(self, sample: Tensor) -> None:
        flat = sample.reshape(-1)
        # An odd stride does not stay within a column.
        step = (flat.numel() // _VALUES) | 1
        values = flat[::step].abs().float()
        values = values[(values > 0) & values.isfinite()]
        if not values.numel():
            return
        self.varied = self.varied or bool(values.min() < values.max())
        last = values.numel() - 1
        if values.numel() >= _FEW:
            last = min(int(_ORDINARY * values.numel()), last - _LARGEST)
        self.magnitudes.append(float(values.sort().values[last]))
