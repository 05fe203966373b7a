"""A layer of 16 bits is rescaled by factors of 15 bits, which is all that TOSA's multiplier for its sums has (S33).

The factor of a channel is the step of the input times that of the weight, divided by that of the output. The nearest
factor of 15 bits is up to a code of 16 bits away. A step of the weight that is a 16,000th larger at most makes it one.
The sums then need no second RESCALE, with which an Ethos-U85 takes three times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.fx import Node
from torchao.quantization.pt2e.observer import UniformQuantizationObserverBase
from torchao.quantization.pt2e.quantizer import EdgeOrNode

from safe_arm._compat.annotations import ScaleAndZero
from safe_arm.acceleration.histogram_search import on_floats
from safe_arm.core.attributes import stored_value
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import CONV_LIKE, op_name
from safe_arm.quantizer.graphs.stand_ins import Observer, Observers

#: Number of steps of 8 bits.
_STEPS = 255
#: Bits of TOSA's multiplier for a sum of 48 bits.
_BITS = 15


def shorten_factors(observers: Observers) -> None:
    """Let the observers of weights find steps by which layers of 16 bits are rescaled exactly.

    A weight that several layers read, as the steps of a recurrent layer do, is left alone: it is stored once as long as
    its codes are the same.

    Args:
        observers: the observer of each annotated place; changed in place. Fake-quantise modules are left alone.
    """
    readers: dict[object, list[EdgeOrNode]] = {}
    for place in observers:
        if isinstance(place, tuple) and _is_weight(*place):
            readers.setdefault(_contents(place[0]), []).append(place)
    for places in readers.values():
        observer = observers[places[0]]
        if len(places) == 1 and isinstance(observer, UniformQuantizationObserverBase):
            _shorten(observers, observer, *places[0])


def _shorten(
    observers: Observers,
    observer: UniformQuantizationObserverBase,
    weight: Node,
    layer: Node,
) -> None:
    read = observers.get((layer.args[0], layer))  # type: ignore[arg-type]
    given = _given(layer, observers)
    if _is_wide(read) and _is_wide(given):
        find = partial(_calculate_qparams, observer._calculate_qparams, read, given)
        observer._calculate_qparams = find  # type: ignore[method-assign]


def _contents(value: Node) -> object:
    """Return what tells the contents of weights apart; each reader may have a copy of its own."""
    weight = stored_value(value).detach().double()
    return weight.shape, float(weight.sum()), float(weight.square().sum())


def _is_weight(value: Node, layer: Node) -> bool:
    return (
        op_name(layer) in CONV_LIKE
        and layer.args[1] is value
        and value.op == "get_attr"
    )


def _given(layer: Node, observers: Observers) -> Observer | None:
    """Return the observer of what a layer gives, by way of an activation that is fused with it."""
    if layer in observers or len(layer.users) != 1:
        return observers.get(layer)
    return observers.get(next(iter(layer.users)))


def _is_wide(observer: Observer | None) -> bool:
    if observer is None or hasattr(observer, "fake_quant_enabled"):
        return False
    return int(observer.quant_max) - int(observer.quant_min) > _STEPS


def _calculate_qparams(
    stock: Callable[..., ScaleAndZero],
    read: Observer,
    given: Observer,
    *bounds: Tensor,
) -> ScaleAndZero:
    """Return the steps of a weight, each the next larger one whose factor has 15 bits, and the zero points."""
    steps, zero_points = stock(*bounds)
    ratio = attempted(_ratio, read, given)
    if isinstance(ratio, Caught):
        return steps, zero_points
    mantissas, exponents = torch.frexp(steps.double() * ratio)
    short = torch.ldexp((mantissas * 2**_BITS).ceil(), exponents - _BITS)
    return (short / ratio).to(steps.dtype), zero_points


def _ratio(read: Observer, given: Observer) -> Tensor:
    """Return the step of a layer's input, divided by that of its output."""
    with on_floats(read), on_floats(given):
        of_input, _ = read.calculate_qparams()
        of_output, _ = given.calculate_qparams()
    return of_input.double() / of_output.double()
