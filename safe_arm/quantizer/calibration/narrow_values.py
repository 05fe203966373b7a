"""Warn once of an input or output that keeps few steps of its quantiser, as a whole or in a channel.

A quantiser's range has 0 in it and covers all channels. A pressure of 101325 +- 50 has one code, and so has a
channel of 1e-3 beside one of 1000.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.errors import warn_of_doubt

#: Steps that a quantity has to span; with fewer it has less than 3 of its 8 bits.
_STEPS = 8.0
#: Steps that it has to span if it has two values only, or if the channels are too many to be quantities.
_FEW_STEPS = 0.5
#: Maximum number of channels that are quantities with units; more are features.
_QUANTITIES = 16
#: Maximum number of channels of an axis, by the number of axes: more are frequencies, positions or words.
_MOST_CHANNELS = {2: 64, 3: 16, 4: 64, 5: 64}
#: A channel whose values differ by less than this of their size is constant up to rounding.
_CONSTANT = 1e-5
#: Maximum number of channels that a warning names.
_NAMED = 3


class Spans:
    """Bounds of each channel of one axis, over all samples.

    Args:
        axis: the axis; None for one channel of all values.
    """

    def __init__(self, axis: int | None) -> None:
        self.axis = axis
        self.low = torch.empty(0)
        self.high = torch.empty(0)
        self._has_more_than_two = torch.empty(0, dtype=torch.bool)

    def add(self, sample: Tensor) -> None:
        """Add a sample that has values."""
        rows = sample.detach().reshape(1, -1)
        if self.axis is not None:
            rows = sample.detach().movedim(self.axis, 0).flatten(1)
        rows = rows.float()
        if self.low.numel() == len(rows):
            known = torch.stack((self.low, self.high), 1)
            rows = torch.cat((rows, known), 1)
        else:
            self._has_more_than_two = torch.zeros(len(rows), dtype=torch.bool)
        self.low, self.high = rows.amin(1), rows.amax(1)
        between = (rows != self.low[:, None]) & (rows != self.high[:, None])
        self._has_more_than_two |= between.any(1)

    def narrow(self, step: float) -> dict[int, float]:
        """Return the channels that span few steps of a quantiser, each with how much it spans."""
        few = _FEW_STEPS * step
        wanted = _STEPS * step if len(self.low) <= _QUANTITIES else few
        spans = (self.high - self.low).tolist()
        sizes = torch.maximum(self.low.abs(), self.high.abs()).tolist()
        several = self._has_more_than_two.tolist()
        found = {}
        for channel, span in enumerate(spans):
            bound = wanted if several[channel] else few
            if _CONSTANT * sizes[channel] < span < bound:
                found[channel] = span
        return found


class NarrowValue:
    """The spans of one input or output, over all calibration samples.

    Args:
        what: the value, for the warning.
        advice_of_offset: what to do if all values are far from 0.
        advice_of_channels: what to do if channels differ in scale.
        is_input: the value is an input.
    """

    def __init__(
        self,
        what: str,
        advice_of_offset: str,
        advice_of_channels: str,
        *,
        is_input: bool,
    ) -> None:
        self.what = what
        self.is_input = is_input
        self.advice_of_offset = advice_of_offset
        self.advice_of_channels = advice_of_channels
        self.whole = Spans(None)
        self.axes: list[Spans] = []
        self.judged = False

    def show(self, sample: Tensor) -> None:
        """Take note of a sample."""
        if not sample.numel() or not bool(sample.isfinite().all()):
            return
        self.whole.add(sample)
        axes = _channel_axes(sample)
        if [spans.axis for spans in self.axes] != axes:
            self.axes = []
            for axis in axes:
                self.axes.append(Spans(axis))
        for spans in self.axes:
            spans.add(sample)

    def judge(self, step: float, steps: int) -> None:
        """Warn if the value, or a channel of it, spans few steps.

        Args:
            step: the step of its quantiser.
            steps: number of steps between its smallest and its largest code.
        """
        if self.judged or not self.whole.low.numel():
            return
        self.judged = True
        text = self._doubt(step, steps)
        if text:
            warn_of_doubt(text)

    def _doubt(self, step: float, steps: int) -> str:
        low, high = float(self.whole.low), float(self.whole.high)
        # A range that begins or ends at 0 has no offset to take away.
        if low * high > 0 and self.whole.narrow(step):
            count = _count((high - low) / step, steps)
            middle = (low + high) / 2
            return (
                f"{self.what} lies between {low:.6g} and {high:.6g} in the calibration data, which is {count} of its "
                f"quantiser, whose range has 0 in it: {self.advice_of_offset.format(f'{middle:.6g}')}"
            )
        # A probability that is small everywhere is as it should be.
        if not self.is_input and low >= 0 and high <= 1:
            return ""
        for spans in self.axes:
            narrow = spans.narrow(step)
            if narrow:
                count = _count(min(narrow.values()) / step, steps)
                covered = f"{min(low, 0.0):.3g} to {max(high, 0.0):.3g}"
                return (
                    f"{self.what}: the values of channel {_named(narrow)} of dimension {spans.axis} span as little "
                    f"as {count} of its quantiser, whose range covers all channels and 0, {covered}: "
                    f"{self.advice_of_channels}"
                )
        return ""


def narrow_value(value: Node) -> NarrowValue | None:
    """Return the spans to watch of a node; None if it is neither an input nor an output."""
    if value.op == "placeholder":
        return NarrowValue(
            f"input {str(value.target)!r}",
            "subtract some {} before the net instead of in it",
            "scale the channels alike before the net instead of in it, or make the input several",
            is_input=True,
        )
    is_output = any(user.op == "output" for user in value.users)
    if not is_output or value.op != "call_function":
        return None
    return NarrowValue(
        f"output {value.name!r}",
        "leave out the offset of some {}, and add it behind the net",
        "scale the channels alike, and back behind the net, or return them apart",
        is_input=False,
    )


def _channel_axes(sample: Tensor) -> list[int]:
    """Return the axes that may have channels."""
    most = _MOST_CHANNELS.get(sample.dim(), 0)
    axes = [1]
    if sample.dim() == 3:
        axes.append(2)
    found = []
    for axis in axes:
        if axis < sample.dim() and 1 < sample.shape[axis] <= most:
            found.append(axis)
    return found


def _named(narrow: dict[int, float]) -> str:
    """Return the first channels with what they span."""
    named = []
    for channel, span in list(narrow.items())[:_NAMED]:
        named.append(f"{channel} ({span:.3g})")
    if len(narrow) > _NAMED:
        named.append("...")
    return ", ".join(named)


def _count(spanned: float, steps: int) -> str:
    """Return a number of steps in words."""
    if spanned < 1:
        return f"less than one of the {steps} steps"
    return f"{math.floor(10 * spanned) / 10:g} of the {steps} steps"
