"""Warn once of a value that is lost in the domain of the concatenation or condition that reads it.

All that a concatenation joins shares one domain, and on a device that runs conditions so do a condition's operands.
The boxes of a detector reach to hundreds of pixels, and its scores to 1: beside the boxes, all scores have one code.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.fx import Node
from torchao.quantization.pt2e.quantizer import EdgeOrNode

from safe_arm.core.errors import DoubtfulInputWarning
from safe_arm.core.written import module_path

_CONDITION = torch.ops.higher_order.cond
_JOINS = (torch.ops.aten.cat.default, torch.ops.aten.stack.default, _CONDITION)
#: Steps that a value has to span; with fewer it has less than 4 of its 8 bits.
_STEPS = 16
_ADVICE = "scale the values alike before they are joined, or return them apart"
_ADVICE_FOR_CONDITIONS = "scale the operands alike, and back within the branches"


class JoinedValue:
    """The range of a value that a concatenation or a condition reads, over all calibration samples.

    Args:
        value: the value.
        join: what reads it.
    """

    def __init__(self, value: Node, join: Node) -> None:
        self.value = _described(value)
        self.join = _described(join)
        self.advice = _ADVICE
        if join.target is _CONDITION:
            self.advice = _ADVICE_FOR_CONDITIONS
        self.low = math.inf
        self.high = -math.inf
        self.judged = False

    def show(self, sample: Tensor) -> None:
        """Take note of the value's range in a sample."""
        if sample.numel():
            low, high = sample.detach().aminmax()
            self.low = min(self.low, float(low))
            self.high = max(self.high, float(high))

    def judge(self, step: float, steps: int) -> None:
        """Warn if the value spans few steps of the domain that it shares.

        Args:
            step: the step of the domain.
            steps: number of steps between its smallest and its largest code.
        """
        spanned = (self.high - self.low) / step
        if self.judged or not 0 < spanned < _STEPS:
            return
        self.judged = True
        text = (
            f"{self.value} spans {spanned:.2g} of the {steps} steps of the domain that"
            f" {self.join} gives to all that it joins, which costs it"
            f" {20 * math.log10(steps / spanned):.0f} dB: {self.advice}"
        )
        warnings.warn(text, DoubtfulInputWarning, stacklevel=2)


def joined_values(places: Iterable[EdgeOrNode]) -> dict[Node, JoinedValue]:
    """Return the values that a concatenation or a condition reads, of all places that are observed."""
    found: dict[Node, JoinedValue] = {}
    for place in places:
        if isinstance(place, tuple) and place[1].target in _JOINS:
            value, join = place
            found.setdefault(value, JoinedValue(value, join))
    return found


def _described(node: Node) -> str:
    path = module_path(node)
    return f"{node.name!r} in {path}" if path else repr(node.name)
