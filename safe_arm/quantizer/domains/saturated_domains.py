"""The domain of a value ends where the functions that read it no longer tell numbers apart.

A sigmoid makes 1 of all that is above 8, and a ReLU makes 0 of all that is below 0. What lies beyond costs a code for
each step and changes no result: a sum in front of a ReLU has one bit less than it could have, and of a sigmoid of
scores that are masked with -1e4 nothing is left but whether they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.island import arguments_by_name, op_name
from safe_arm.core.operators import ElementOrigin, operators
from safe_arm.quantizer.domains.mask_observer import MaskObserver
from safe_arm.quantizer.graphs.graph_edits import is_call, readers_of, stored_number
from safe_arm.quantizer.graphs.stand_ins import (
    Limiter,
    Observer,
    Observers,
    put_in_front,
)

#: Operators whose results are elements of what they read, so that to limit it limits them.
_MOVES = operators(
    ElementOrigin.VIEW,
    ElementOrigin.PART,
    ElementOrigin.EXTREME,
    ElementOrigin.PADDED,
    ElementOrigin.JOINED,
    ElementOrigin.MERGED,
)


@dataclass(frozen=True)
class Reach:
    """The numbers that a function tells apart.

    Attributes:
        low: all below it have the same result, to half a step of int8.
        high: all above it have.
        lowest: the bound below if all numbers of a sample are negative, and those of others are not.
    """

    low: float = -math.inf
    high: float = math.inf
    lowest: float = math.inf


#: Functions that tell no numbers apart beyond a bound; each may be one that writes in place. The hard sigmoid's are a
#: step further, so that 0 and 1 are results of a code.
_EXACT = {
    "aten::relu": Reach(low=0.0),
    "aten::hardsigmoid": Reach(low=-3.05, high=3.05),
    "aten::hardswish": Reach(low=-3.0),
    "aten::relu6": Reach(low=0.0, high=6.0),
}
#: Functions that tell them apart by less than half a step of int8 there.
_NEAR = {
    "aten::sigmoid": Reach(low=-8.0, high=8.0),
    "aten::tanh": Reach(low=-4.0, high=4.0),
    "aten::erf": Reach(low=-3.0, high=3.0),
    "aten::gelu": Reach(low=-5.0),
    "aten::silu": Reach(low=-12.0),
    "aten::mish": Reach(low=-12.0),
    "aten::exp": Reach(low=-9.0, lowest=-12.0),
}
_CLAMPS = ("aten::clamp", "aten::hardtanh")


class ReachedObserver(Limiter):
    """Shows an observer what its readers tell apart.

    Args:
        observer: the observer of the value.
        reach: what they tell apart.
    """

    def __init__(self, observer: Observer, reach: Reach) -> None:
        super().__init__(observer)
        self.reach = reach
        self.highest = -math.inf

    def limited(self, x: Tensor) -> Tensor:
        """Return a value of any shape as far as its readers tell numbers apart."""
        low = self.reach.low
        if self.reach.lowest < low and x.numel():
            largest = min(float(x.detach().amax()), 0.0)
            self.highest = max(self.highest, largest)
            lowest = min(self.reach.lowest, low + self.highest)
            low = max(low + largest, lowest)
        return x.clamp(low, self.reach.high)


def end_where_readers_saturate(
    observers: Observers,
) -> None:
    """Let a value be observed as far as the functions that read it tell numbers apart.

    Args:
        observers: the observer of each annotated place; changed in place.
    """

    def reached(value: Node, observer: Observer) -> ReachedObserver | None:
        reach = reach_of(value, observer.dtype)
        is_open = math.isinf(reach.low) and math.isinf(reach.high)
        if is_open or isinstance(observer, MaskObserver):
            return None
        return ReachedObserver(observer, reach)

    put_in_front(observers, ReachedObserver, reached)


def reach_of(value: Node, dtype: torch.dtype) -> Reach:
    """Return what is told apart by all that reads a value, or what it is moved to.

    Args:
        value: the value.
        dtype: the dtype of its codes.
    """
    reaches = [_told_apart(reader, dtype) for reader in readers_of(value, _MOVES)]
    if not reaches:
        return Reach()
    low = min(reach.low for reach in reaches)
    high = max(reach.high for reach in reaches)
    lowest = min(reach.lowest for reach in reaches)
    return Reach(low, high, lowest)


def _told_apart(reader: Node, dtype: torch.dtype) -> Reach:
    function = op_name(reader).removesuffix("_")
    if function in _CLAMPS:
        _, low, high = arguments_by_name(reader).values()
        return Reach(_number(low, -math.inf), _number(high, math.inf))
    if function == "aten::relu" and dtype != torch.int8:
        return Reach()  # Its negative values are the room of a symmetric domain, which costs a fraction of a bit.
    if function in _EXACT:
        return _EXACT[function]
    if function == "aten::abs":
        high = reach_of(reader, dtype).high
        return Reach(-high, high)
    if function == "aten::mul":
        return _of_product(reader, dtype)
    reach = _NEAR.get(function, Reach())
    if dtype == torch.int8:
        return reach
    return Reach(
        low=2 * reach.low,
        high=2 * reach.high,
        lowest=2 * reach.lowest,
    )


def _of_product(product: Node, dtype: torch.dtype) -> Reach:
    """Return what is told apart by all that reads the negative multiple of a magnitude; everything of any other.

    A magnitude may be near 0. Of another value the exponential may be small throughout, and what it tells apart is then
    relative to the largest.
    """
    magnitude = product.args[0]
    factor = stored_number(product.args[1])
    if not is_call(magnitude, torch.ops.aten.abs.default):
        return Reach()
    if factor is None or factor >= 0:
        return Reach()
    reach = reach_of(product, dtype)
    return Reach(reach.high / factor, reach.low / factor)


def _number(bound: object, unbounded: float) -> float:
    """Return the number that is a bound of a clamp or a hardtanh; one that is a tensor is none."""
    return float(bound) if isinstance(bound, (int, float)) else unbounded
