"""Signal, noise and range of values over samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from safe_arm.core.island import QParams
from safe_arm.core.unit_accuracy import decibel


def finite(wanted: Tensor, got: Tensor) -> tuple[Tensor, Tensor]:
    """Return two values, with 0 in both where either is infinite or NaN, as in a mask."""
    # A sum is cheaper than a look at each.
    if math.isfinite(wanted.sum().item() + got.sum().item()):
        return wanted, got
    fine = torch.isfinite(wanted) & torch.isfinite(got)
    return wanted.where(fine, 0.0), got.where(fine, 0.0)


def float_leaves(outputs: object) -> list[Tensor]:
    """Return the float tensors among the outputs of a net."""
    tensors = []
    for leaf in tree_leaves(outputs):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            tensors.append(leaf)
    return tensors


@dataclass
class SignalDistance:
    """Mean squares over samples.

    Attributes:
        signal: of the float value.
        noise: of the difference.
    """

    signal: float = 0.0
    noise: float = 0.0

    def add(self, signal: float, noise: float) -> None:
        """Add one sample."""
        self.signal += signal
        self.noise += noise

    @property
    def db(self) -> float:
        """Signal to noise in dB, within plus and minus ``EXACT_DB``."""
        return decibel(self.signal, self.noise)


def power(value: Tensor) -> float:
    """Return the mean square of a value."""
    return value.double().square().mean().item()


def apart(wanted: Tensor, got: Tensor) -> float:
    """Return the mean square of a difference, in float64."""
    return power(wanted.double() - got.double())


class UnitDistances:
    """The errors of one unit, and its values beside its range.

    Attributes:
        cumulative: as the net runs.
        isolated: with everything before it in float.
    """

    def __init__(self, qparams: QParams, channel_axis: int | None) -> None:
        self.cumulative = SignalDistance()
        self.isolated = SignalDistance()
        self._axis = channel_axis
        self._least = (qparams.qmin - qparams.zero_point) * qparams.scale
        self._most = (qparams.qmax - qparams.zero_point) * qparams.scale
        self._half = qparams.scale / 2
        self._low = math.inf
        self._high = -math.inf
        self._outside = 0
        self._values = 0
        self._channels = torch.zeros(2, 0, dtype=torch.float64)

    def add(
        self,
        wanted: Tensor,
        whole: Tensor,
        alone: Tensor | None,
    ) -> None:
        """Add one sample.

        Args:
            wanted: the float value.
            whole: as the net runs.
            alone: this unit alone; None if it has no error of its own.
        """
        value, running = finite(wanted, whole)
        signal = power(value)
        self.cumulative.add(signal, apart(value, running))
        if value.numel():
            self._low = min(self._low, value.min().item())
            self._high = max(self._high, value.max().item())
        outside = (value < self._least - self._half) | (value > self._most + self._half)
        self._outside += int(outside.sum())
        self._values += value.numel()
        if alone is None:
            self.isolated.add(signal, 0.0)
            return
        _, own = finite(wanted, alone)
        self.isolated.add(signal, apart(value, own))
        if self._axis is not None:
            self._add_channels(value.double(), (own - value).double(), self._axis)

    def _add_channels(
        self,
        signal: Tensor,
        noise: Tensor,
        axis: int,
    ) -> None:
        rest = [dim for dim in range(signal.dim()) if dim != axis]
        powers = torch.stack((signal.square().sum(rest), noise.square().sum(rest)))
        if self._channels.shape == powers.shape:
            powers = powers + self._channels
        if powers.shape[1] > 1:
            self._channels = powers

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
        worst: int | None = None
        lowest: float | None = None
        for channel, (signal, noise) in enumerate(self._channels.T.tolist()):
            if not signal:
                continue
            ratio = decibel(signal, noise)
            if lowest is None or ratio < lowest:
                worst = channel
                lowest = ratio
        return worst, lowest
