"""A number that a maximum takes only where there is nothing else does not widen the domain of the values.

"Same" padding in front of a max pool, as timm's ``MaxPool2dSame`` does it, is minus infinity, and so is what a masked
maximum takes where there is no word. Stock fills with -256, which widens the domain of the values: between -4 and 4
they keep 15 dB of 46, and none if the number is -1e9. Beyond the domain the number has its least code, which is no more
than any value's. A maximum of nothing but the number is observed like every result: calibration that shows one keeps
the number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torchao.quantization.pt2e.fake_quantize import FakeQuantizeBase
from torchao.quantization.pt2e.quantizer import EdgeOrNode

from safe_arm.core.island import op_name
from safe_arm.core.operators import ElementOrigin, operators
from safe_arm.quantizer.graphs.constant_values import (
    ConstantValues,
    filler_of,
    number_of,
)
from safe_arm.quantizer.graphs.mask_bounds import SMALLEST_FILL
from safe_arm.quantizer.graphs.stand_ins import (
    Observer,
    Observers,
    StandIn,
    has_one_scale,
    shown,
)

_ATEN = torch.ops.aten

_PAD = _ATEN.pad.default
_CONSTANT_PAD = _ATEN.constant_pad_nd.default
#: Operators that take the greatest of their values, or its place.
GREATEST = (
    # ReLU makes zero of the number, and every domain has a code for zero.
    _ATEN.relu.default,
    _ATEN.amax.default,
    _ATEN.max.default,
    _ATEN.max.dim,
    _ATEN.max_pool1d.default,
    _ATEN.max_pool2d.default,
    _ATEN.argmax.default,
)
#: Operators that take the least.
LEAST = (
    _ATEN.amin.default,
    _ATEN.min.default,
    _ATEN.min.dim,
    _ATEN.argmin.default,
)
#: Operators whose results are elements of their first argument, by place.
_MOVES = operators(ElementOrigin.VIEW, ElementOrigin.PART)
#: Operators that put values of several tensors into one.
_JOINS = operators(ElementOrigin.JOINED, ElementOrigin.MERGED)


class FilledObserver(StandIn):
    """Shows an observer the values that are not the number.

    Args:
        observer: the observer of the domain.
        number: what places are filled with.
    """

    def __init__(self, observer: Observer, number: float) -> None:
        super().__init__(observer)
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        """Show a value of any shape to the observer, and return it; a fake-quantise module rounds all of it."""
        kept = x[x != self.number]
        if kept.numel():
            shown(self.observer, kept)
        if hasattr(self.observer, "fake_quant_enabled"):
            return rounded(self.observer, x)
        return x


def rounded(fake_quantize: FakeQuantizeBase, x: Tensor) -> Tensor:
    """Return what a fake-quantise module makes of a value that it is not to observe."""
    enabled = bool(fake_quantize.observer_enabled)
    fake_quantize.enable_observer(False)
    result: Tensor = fake_quantize(x)
    fake_quantize.enable_observer(enabled)
    return result


def moved_to_extremes(node: Node, number: float) -> list[Node]:
    """Return a value that is filled with a number, and what it is moved to, before it is compared.

    Args:
        node: the value.
        number: the number.

    Returns:
        Nothing if it is read by anything but maxima, or minima where the number is positive.
    """
    extremes = GREATEST if number < 0 else LEAST
    moved = [node]
    for each in moved:
        for reader in each.users:
            if op_name(reader) in _MOVES:
                moved.append(reader)
            elif reader.target not in extremes:
                return []
    return moved


def leave_fills_out(
    observers: Observers,
) -> None:
    """Let a number not be observed that is there for a maximum, or a minimum, not to take.

    Args:
        observers: the observer of each annotated place; changed in place.
    """
    nodes = [place for place in observers if isinstance(place, Node)]
    model = nodes[0].graph.owning_module if nodes else None
    if model is None:
        return
    values = ConstantValues(model)
    for node in nodes:
        observer = observers[node]
        number, places = _filled(node, values)
        if abs(number) <= SMALLEST_FILL or not has_one_scale(observer):
            continue
        if isinstance(observer, FilledObserver):
            continue
        moved = moved_to_extremes(node, number)
        if {id(observers.get(each)) for each in moved} != {id(observer)}:
            continue
        for each in moved:
            places.append(each)
            for reader in each.users:
                places.append((each, reader))
        unfilled = FilledObserver(observer, number)
        for place in places:
            if observers.get(place) is observer:
                observers[place] = unfilled


def _filled(node: Node, values: ConstantValues) -> tuple[float, list[EdgeOrNode]]:
    """Return the number that a node puts beside values, and where that is read; 0 if it puts none."""
    arguments = node.args
    if node.target is _PAD and arguments[2:3] in ((), ("constant",)):
        return _as_number(arguments[3:4]), []
    if node.target is _CONSTANT_PAD:
        return _as_number(arguments[2:3]), []
    numbers: set[float] = set()
    places: list[EdgeOrNode] = []
    if op_name(node).rstrip("_") in _JOINS:
        for operand in node.all_input_nodes:
            number, moved = _constant(operand, values)
            if number:
                numbers.add(number)
                places += [*moved, (operand, node)]
    if len(numbers) != 1:
        return 0.0, []
    return numbers.pop(), places


def _constant(operand: Node, values: ConstantValues) -> tuple[float, list[EdgeOrNode]]:
    """Return the number that all elements of an operand are, 0 if there is none, and the places it passes."""
    places: list[EdgeOrNode] = [operand]
    while op_name(operand) in _MOVES and isinstance(operand.args[0], Node):
        source = operand.args[0]
        places += [(source, operand), source]
        operand = source
    filler = filler_of(operand)
    if filler is not None:
        return filler, places
    number = number_of(values.of(operand))
    return (0.0, []) if number is None else (number, places)


def _as_number(arguments: tuple[Any, ...]) -> float:
    """Return the number in a slice of arguments; 0 if there is none."""
    for argument in arguments:
        if isinstance(argument, (int, float)):
            return float(argument)
    return 0.0
