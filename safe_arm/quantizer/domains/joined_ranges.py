"""Warn once of a value that is lost in the domain of what reads it beside larger ones.

All that a concatenation joins shares one domain, and so does what a ``where``, a scatter or a comparison reads. The
boxes of a detector reach to hundreds of pixels, and its scores to 1: beside the boxes, all scores have one code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.fx import Node
from torchao.quantization.pt2e.quantizer import EdgeOrNode

from safe_arm.core.errors import warn_of_doubt
from safe_arm.core.written import module_path

_ATEN = torch.ops.aten

#: Operators that read values in any domains. They read one where a value meets its own transpose, or the scores of a
#: softmax their maximum, and lose nothing by it.
_ARITHMETIC = (
    _ATEN.add.Tensor,
    _ATEN.sub.Tensor,
    _ATEN.mul.Tensor,
    _ATEN.bmm.default,
    _ATEN.matmul.default,
)
#: Steps that a value has to span; with fewer it has less than 4 of its 8 bits.
_STEPS = 16
#: Share of its domain that it may span in fewer: all steps of 4 bits are 15.
_SHARE = 1 / 16
#: Share of a step below which its digits tell nobody anything.
_NEXT_TO_NOTHING = 0.1
_ADVICE = "scale the values alike before they are joined, or return them apart"


class JoinedValue:
    """The range of a value that is read beside others, over all calibration samples.

    Args:
        value: the value.
        join: what reads it.
    """

    def __init__(self, value: Node, join: Node) -> None:
        self.value = _described(value)
        self.join = _described(join)
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
        # A domain of its own has 0 as well.
        spanned = (max(self.high, 0.0) - min(self.low, 0.0)) / step
        wanted = min(_STEPS, _SHARE * steps)
        if self.judged or not self.low < self.high or not spanned < wanted:
            return
        self.judged = True
        share = f"{spanned:.2g}"
        if spanned < _NEXT_TO_NOTHING:
            share = f"less than {_NEXT_TO_NOTHING}"
        cost = f"costs it {20 * math.log10(steps / spanned):.0f} dB"
        if spanned < 1:
            cost = "leaves it one code or two"
        text = (
            f"{self.value} spans {share} of the {steps} steps of the domain that"
            f" {self.join} gives to all that it joins, which {cost}: {_ADVICE}"
        )
        warn_of_doubt(text)


def joined_values(observers: Mapping[EdgeOrNode, object]) -> dict[Node, JoinedValue]:
    """Return the values that an operator reads in the domain of others, of all places that are observed.

    Args:
        observers: the observer of each value and edge; those of one domain have the same.
    """
    together: dict[tuple[Node, int], list[Node]] = {}
    for place, observer in observers.items():
        if isinstance(place, tuple) and observer is not None:
            value, reader = place
            if reader.op == "output":
                continue
            together.setdefault((reader, id(observer)), []).append(value)
    found: dict[Node, JoinedValue] = {}
    for (reader, _), values in together.items():
        if len(values) > 1 and reader.target not in _ARITHMETIC:
            for value in values:
                found.setdefault(value, JoinedValue(value, reader))
    return found


def _described(node: Node) -> str:
    path = module_path(node)
    return f"{node.name!r} in {path}" if path else repr(node.name)
