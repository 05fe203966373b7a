"""Values far below all that a maximum takes do not widen the domain of the others, as where a mask is added to them.

``(x + (1 - keep) * -1e4).amax(1)`` needs no code for -1e4 where each row keeps a value. Which values a maximum takes is
known where the sum is calibrated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.island import op_name
from safe_arm.core.operators import ElementOrigin, operators
from safe_arm.quantizer.domains.filled_readers import GREATEST, LEAST
from safe_arm.quantizer.graphs.graph_edits import moved_from, operands_of
from safe_arm.quantizer.graphs.mask_bounds import MASKED, is_hiding
from safe_arm.quantizer.graphs.stand_ins import (
    Limiter,
    Observer,
    Observers,
    put_in_front,
)

_ATEN = torch.ops.aten
_MOVES = operators(ElementOrigin.VIEW, ElementOrigin.PART)
_SUMS = (_ATEN.add.Tensor, _ATEN.sub.Tensor)
#: Operators that find the place of an extreme, and those that take it.
_INDICES: dict[Any, Any] = {
    _ATEN.argmax.default: _ATEN.amax.default,
    _ATEN.argmin.default: _ATEN.amin.default,
}
#: A value is far if it is beyond the results by so many times their range.
_FAR = 16.0
#: The logarithm of a probability that is less than half a code of int8.
_NO_PROBABILITY = -9.0


#: An operator of one tensor, and its arguments behind that; a copy of an observer has no node of the graph.
OperatorCall: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
#: The calls that move a value, in order, and the one that takes its extreme.
Extreme: TypeAlias = tuple[OperatorCall, ...]


class ExtremeObserver(Limiter):
    """Shows an observer a value without what is far below all that maxima take of it, or above what minima take.

    Args:
        observer: the observer of the value.
        extremes: what takes an extreme of it, each with the moves before.
        sign: 1 of maxima, -1 of minima.
    """

    def __init__(
        self,
        observer: Observer,
        extremes: list[Extreme],
        sign: int,
    ) -> None:
        super().__init__(observer)
        self.extremes = extremes
        self.sign = sign

    def limited(self, x: Tensor) -> Tensor:
        """Return a value of any shape without what is far beyond its extremes."""
        if not x.numel():
            return x
        taken = []
        for extreme in self.extremes:
            value = x.detach()
            for function, rest in extreme:
                value = function(value, *rest)
                if isinstance(value, tuple):
                    value = value[0]
            taken.append(value.flatten())
        results = torch.cat(taken) * self.sign
        least = results.amin()
        width = torch.maximum(results.amax() - least, least.abs())
        bound = float(least - width)
        if float((x.detach() * self.sign).amin()) > bound - _FAR * float(width):
            return x
        if self.sign > 0:
            return x.clamp(min=bound)
        return x.clamp(max=-bound)


class LogProbabilityObserver(Limiter):
    """Shows an observer log-probabilities without those that are masked, which have the least code.

    The domain reaches to where a probability is nothing.
    """

    def limited(self, x: Tensor) -> Tensor:
        """Return log-probabilities of any shape with a number below all that are kept where they are masked."""
        kept = x[x > MASKED]
        if kept.numel() == x.numel():
            return x
        if kept.numel():
            return x.clamp(min=min(float(kept.amin()), _NO_PROBABILITY))
        return x.clamp(min=_NO_PROBABILITY)


def leave_masks_out(
    observers: Observers,
) -> None:
    """Let what is far beyond all that extremes take of a sum not be observed, nor masked log-probabilities.

    Args:
        observers: the observer of each annotated place; changed in place.
    """

    def limited(value: Node, observer: Observer) -> ExtremeObserver | None:
        if moved_from(value).target not in _SUMS:
            return None
        extremes, sign = extremes_of(value)
        return ExtremeObserver(observer, extremes, sign) if extremes else None

    def unmasked(value: Node, observer: Observer) -> LogProbabilityObserver | None:
        for reader in value.users:
            log, bound = operands_of(reader, _ATEN.minimum.default)
            if log is value and is_hiding(bound):
                return LogProbabilityObserver(observer)
        return None

    put_in_front(observers, ExtremeObserver, limited)
    put_in_front(observers, LogProbabilityObserver, unmasked)


def extremes_of(value: Node) -> tuple[list[Extreme], int]:
    """Return all that reads a value, and their sign; nothing if it is read by anything but maxima, or but minima."""
    pending: list[tuple[Node, Extreme]] = [(value, ())]
    extremes: list[Extreme] = []
    signs = set()
    for each, moves in pending:
        for reader in each.users:
            if reader.kwargs or reader.all_input_nodes != [each]:
                return [], 0
            if op_name(reader) in _MOVES:
                pending.append((reader, (*moves, _call_of(reader))))
            elif reader.target in (*GREATEST, *LEAST):
                extremes.append((*moves, _call_of(reader)))
                signs.add(1 if reader.target in GREATEST else -1)
            else:
                return [], 0
    if len(signs) != 1:
        return [], 0
    return extremes, signs.pop()


def _call_of(node: Node) -> OperatorCall:
    """Return the call of a node that moves its first argument, or takes an extreme of it or finds the place of one."""
    function: Any = node.target
    if function not in _INDICES:
        return function, node.args[1:]
    dims = node.args[1:2]
    return _INDICES[function], () if dims == (None,) else dims
