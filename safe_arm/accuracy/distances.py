"""Signal, noise and range of values over samples, by ExecuTorch's comparator."""

from __future__ import annotations

import math

import torch
from executorch.devtools.inspector.numerical_comparator import MSEComparator

from safe_arm._compat.numeric_debugger import QuantizationComparisonResult
from safe_arm.core.island import QParams
from safe_arm.core.unit_accuracy import EXACT_DB

_SQUARES = MSEComparator()


def finite(
    wanted: torch.Tensor, got: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two values without what is infinite or no number in the first, as in a mask, or the second: 0 in both."""
    if math.isfinite(
        wanted.sum().item() + got.sum().item()
    ):  # cheaper than a look at each
        return wanted, got
    fine = torch.isfinite(wanted) & torch.isfinite(got)
    return wanted.where(fine, 0.0), got.where(fine, 0.0)


class Distance:
    """Mean squares over samples.

    Attributes:
        signal: of the float value.
        noise: of the difference.
    """

    def __init__(self) -> None:
        self.signal, self.noise = 0.0, 0.0

    def add(self, signal: float, noise: float) -> None:
        """Add one sample."""
        self.signal += signal
        self.noise += noise

    @property
    def db(self) -> float:
        """Signal to noise in dB, within plus and minus ``EXACT_DB``."""
        return decibel(self.signal, self.noise)


def power(value: torch.Tensor) -> float:
    """Return the mean square of a value."""
    return apart(value, torch.zeros((), dtype=value.dtype))


def apart(wanted: torch.Tensor, got: torch.Tensor) -> float:
    """Return the mean square of a difference, in float64."""
    return _SQUARES.element_compare(wanted, got)


class UnitDistances:
    """What is measured of one unit.

    Attributes:
        cumulative: as the net runs.
        isolated: with everything before it in float.
    """

    def __init__(self, qparams: QParams, channel_axis: int | None) -> None:
        self.cumulative, self.isolated = Distance(), Distance()
        self._axis = channel_axis
        self._least, self._most = (
            (code - qparams.zero_point) * qparams.scale
            for code in (qparams.qmin, qparams.qmax)
        )
        self._half = qparams.scale / 2
        self._low, self._high, self._outside, self._values = math.inf, -math.inf, 0, 0
        self._channels = torch.zeros(2, 0, dtype=torch.float64)

    def add(
        self,
        whole: QuantizationComparisonResult,
        alone: QuantizationComparisonResult | None,
    ) -> None:
        """Add one sample.

        Args:
            whole: as the net runs.
            alone: this unit alone; None if it has no error of its own.
        """
        value, running = finite(whole.ref, whole.actual)
        _, own = (value, value) if alone is None else finite(whole.ref, alone.actual)
        signal = power(value)
        self.cumulative.add(signal, apart(value, running))
        self.isolated.add(signal, 0.0 if alone is None else apart(value, own))
        if value.numel():
            self._low, self._high = (
                min(self._low, value.min().item()),
                max(self._high, value.max().item()),
            )
        outside = (value < self._least - self._half) | (value > self._most + self._half)
        self._outside, self._values = (
            self._outside + int(outside.sum()),
            self._values + value.numel(),
        )
        if self._axis is not None and alone is not None:
            self._add_channels(value.double(), (own - value).double(), self._axis)

    def _add_channels(
        self, signal: torch.Tensor, noise: torch.Tensor, axis: int
    ) -> None:
        rest = [dim for dim in range(signal.dim()) if dim != axis]
        powers = torch.stack([each.square().sum(rest) for each in (signal, noise)])
        if powers.shape[1] > 1:
            self._channels = (
                powers + self._channels
                if self._channels.shape == powers.shape
                else powers
            )

    @property
    def saturated(self) -> float:
        """The share of values more than half a step outside the range."""
        return self._outside / self._values if self._values else 0.0

    @property
    def used(self) -> float:
        """The share of the range between the least and the largest value."""
        spanned = min(self._high, self._most) - max(self._low, self._least)
        return min(1.0, max(0.0, spanned / (self._most - self._least)))

    @property
    def worst_channel(self) -> tuple[int | None, float | None]:
        """The channel with the lowest isolated ratio of those that have a signal, and that; None for none."""
        ratios = [
            decibel(*powers) if powers[0] else math.inf
            for powers in self._channels.T.tolist()
        ]
        worst = min(range(len(ratios)), key=ratios.__getitem__, default=None)
        return (
            (None, None)
            if worst is None or ratios[worst] == math.inf
            else (worst, ratios[worst])
        )


def decibel(signal: float, noise: float) -> float:
    """Return a ratio of powers in dB, within plus and minus ``EXACT_DB``."""
    if not noise:
        return EXACT_DB
    return (
        max(-EXACT_DB, min(EXACT_DB, 10 * math.log10(signal / noise)))
        if signal
        else -EXACT_DB
    )
