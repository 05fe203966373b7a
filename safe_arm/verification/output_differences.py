"""Measure how far a delegate's outputs are from its quantised graph's as a whole, over all sets of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.verification.distance import (
    code_step,
    codes_apart,
    relative_beyond_rounding,
)
from safe_arm.verification.evaluation import Evaluation

#: Unit of a difference: codes, integers that are no codes, or a share of the largest real float.
Unit = Literal["codes", "integers", "relative"]
#: The dtypes of codes.
_CODES = (torch.int8, torch.uint8, torch.int16)
#: Units by rank: of outputs that differ, one in codes is named first.
_ORDER: tuple[Unit, ...] = ("relative", "integers", "codes")
#: A relative difference of a value that is infinite on one side only.
_INFINITE = 1e30


@dataclass(frozen=True)
class WholeDifference:
    """The output of a delegate that differs most from the quantised graph, which rounds ties to even.

    Attributes:
        worst: the largest difference of a value; 0 if no output differs. For real floats it is the part that float32
            rounding does not explain, relative to the largest value.
        mean: the mean difference over all values of that output.
        output: the number of that output.
        unit: the unit of ``worst`` and ``mean``.
    """

    worst: float = 0.0
    mean: float = 0.0
    output: int = 0
    unit: Unit = "codes"


@dataclass
class _Gathered:
    """The differences of one output over all sets of inputs."""

    unit: Unit
    worst: float = 0.0
    total: float = 0.0
    values: int = 0


@dataclass
class OutputDifferences:
    """The differences of each output, added up over sets of inputs of any size."""

    _outputs: dict[int, _Gathered] = field(default_factory=dict)

    def add(
        self,
        nodes: Sequence[Node],
        actual: Sequence[Tensor],
        to_even: Evaluation,
        undefined: Mapping[Node, Tensor],
    ) -> bool:
        """Add one set of inputs, and tell whether an output differs by more than on any set before.

        Args:
            nodes: the delegate's outputs.
            actual: their values.
            to_even: the quantised graph on the same inputs, ties to even.
            undefined: for some outputs, which of its values depend on the code that a NaN becomes.
        """
        farther = False
        for number, (node, tensor) in enumerate(zip(nodes, actual, strict=True)):
            apart = codes_apart(node, tensor, to_even)
            if apart is None:
                apart = relative_beyond_rounding(node, tensor, to_even).clamp(
                    max=_INFINITE
                )
            if node in undefined:
                apart = apart[~undefined[node]]
            gathered = self._outputs.setdefault(number, _Gathered(_unit(node, tensor)))
            gathered.total += float(apart.sum())
            gathered.values += apart.numel()
            if apart.numel() and float(apart.max()) > gathered.worst:
                gathered.worst = float(apart.max())
                farther = True
        return farther

    def worst(self) -> WholeDifference:
        """Return the output that differs most; in codes first, since no other unit compares with them."""
        differing = []
        rounded: WholeDifference | None = None
        for number, each in self._outputs.items():
            mean = each.total / max(1, each.values)
            difference = WholeDifference(each.worst, mean, number, each.unit)
            if each.worst:
                differing.append(difference)
            elif each.unit == "relative" and rounded is None:
                # Real floats are right within their rounding, which is less than exact.
                rounded = difference
        return max(differing, key=_rank, default=rounded or WholeDifference())


def _rank(difference: WholeDifference) -> tuple[int, float, float]:
    return _ORDER.index(difference.unit), difference.worst, difference.mean


def _unit(node: Node, value: Tensor) -> Unit:
    if value.is_floating_point():
        return "relative" if code_step(node) is None else "codes"
    return "codes" if value.dtype in _CODES else "integers"
