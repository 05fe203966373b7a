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

from safe_arm._compat.annotations import ScaleAndZero
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import CONV_LIKE, op_name
from safe_arm.quantizer.graphs.stand_ins import Observer, Observers

#: Number of steps of 8 bits.
_STEPS = 255
_BITS = 15


def shorten_factors(observers: Observers) -> None:
    """Let the observers of weights find steps by which layers of 16 bits are rescaled exactly.

    Args:
        observers: the observer of each annotated place; changed in place. Fake-quantise modules are left alone.
    """
    layers: dict[int, list[Node]] = {}
    for place, observer in observers.items():
        if isinstance(place, tuple) and _is_weight(*place):
            layers.setdefault(id(observer), []).append(place[1])
    for place, observer in observers.items():
        readers = layers.get(id(observer), [])
        if len(readers) != 1 or not isinstance(
            observer, UniformQuantizationObserverBase
        ):
            continue
        layer = readers[0]
        read = observers.get((layer.args[0], layer))  # type: ignore[arg-type]
        given = _given(layer, observers)
        if place == (layer.args[1], layer) and _is_wide(read) and _is_wide(given):
            find = partial(_calculate_qparams, observer._calculate_qparams, read, given)
            observer._calculate_qparams = find  # type: ignore[method-assign]


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
    """Return the step of a layer's input through that of its output."""
    of_input, _ = read.calculate_qparams()
    of_output, _ = given.calculate_qparams()
    return of_input.double() / of_output.double()
