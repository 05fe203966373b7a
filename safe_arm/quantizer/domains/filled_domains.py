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
from safe_arm.quantizer.domains.filled_readers import (
    GREATER,
    LESS,
    MOVES,
    Readers,
    readers_of_fill,
)
from safe_arm.quantizer.domains.parted_domains import derive_anew, join_again
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


class LastObserver(StandIn):
    """Shows an observer the results of the last maximum, and the domain of what it compares a number that is taken.

    Args:
        observer: the observer of the result.
        compared: that of the values that are compared.
        number: what places are filled with.
    """

    def __init__(self, observer: Observer, compared: Observer, number: float) -> None:
        super().__init__(observer)
        self.compared = compared
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        """Show a value of any shape to the observers, and return it."""
        taken = x[x == self.number]
        if taken.numel():
            self.compared(taken)
        return shown(self.observer, x)


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
        number, places = _filled(node, values)
        if abs(number) <= SMALLEST_FILL or not has_one_scale(observers[node]):
            continue
        readers = readers_of_fill(node, number)
        if readers is not None:
            _leave_out(number, places, readers, observers)


def _leave_out(
    number: float, places: list[EdgeOrNode], readers: Readers, observers: Observers
) -> None:
    """Let a number not be observed where a value is filled with it, and where that is moved to.

    Args:
        number: the number.
        places: where the number is read.
        readers: what reads the value.
        observers: the observer of each annotated place; changed in place.
    """
    moved = _places_of(readers.moved, observers)
    joined = dict(observers)
    domain = _domain_of(readers, moved, joined)
    if domain is None:
        return
    observers.update(joined)
    derive_anew(observers)
    unfilled = FilledObserver(domain, number)
    for place in places:
        if observers.get(place) is domain:
            observers[place] = unfilled
    for place in moved:
        if not isinstance(observers[place], FilledObserver):
            observers[place] = unfilled
    for last in readers.last:
        _show_last(last, domain, number, observers)


def _show_last(
    last: Node, domain: Observer, number: float, observers: Observers
) -> None:
    """Let a domain have a code for the number if a maximum of two values takes it, whose result has its own domain."""
    observer = observers.get(last)
    if last.target not in (GREATER, LESS) or observer is None or observer is domain:
        return
    is_trained = hasattr(observer, "fake_quant_enabled")
    if not is_trained and not isinstance(observer, LastObserver):
        observers[last] = LastObserver(observer, domain, number)


def _places_of(values: list[Node], observers: Observers) -> list[EdgeOrNode]:
    """Return all places of some values; a reader that is not quantised, as the place of a maximum may be, has none."""
    places: list[EdgeOrNode] = []
    for value in values:
        places.append(value)
        for reader in value.users:
            if observers.get((value, reader)) is not None:
                places.append((value, reader))
    return places


def _domain_of(
    readers: Readers, moved: list[EdgeOrNode], observers: Observers
) -> Observer | None:
    """Return the observer of a filled value, which what it is moved to gets as well.

    Where the domain has been parted for joins, it is one again.

    Args:
        readers: what reads the value.
        moved: the places of the value, and of what it is moved to.
        observers: the observer of each annotated place; changed in place.

    Returns:
        None if a place has none, or other values are compared in another domain, or share that of a maximum.
    """
    if not all(has_one_scale(observers.get(place)) for place in moved):
        return None
    if len({id(_unfilled(observers[place])) for place in moved}) > 1:
        for place in moved:
            join_again(observers, observers[place])
    domain = _unfilled(observers[readers.moved[0]])
    known = {id(_unfilled(observers[place])) for place in moved}
    others = known - {id(domain)}
    for place, observer in observers.items():
        if id(observer) in others and place not in moved:
            return None
    for reader in readers.comparing():
        for operand in reader.all_input_nodes:
            observer = observers.get((operand, reader))
            if observer is None or id(_unfilled(observer)) not in known:
                return None
    return domain


def _unfilled(observer: Observer) -> Observer:
    """Return the observer of the domain at a place."""
    if isinstance(observer, FilledObserver):
        return observer.observer
    return observer


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
    while op_name(operand) in MOVES and isinstance(operand.args[0], Node):
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
