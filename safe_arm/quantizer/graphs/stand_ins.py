"""Modules that stand in the place of an observer and change what it is shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, TypeGuard

import torch
from torch import Tensor, nn
from torch.fx import Node
from torchao.quantization.pt2e import ObserverOrFakeQuantize
from torchao.quantization.pt2e.fake_quantize import (
    FakeQuantize,
    FakeQuantizeBase,
    FusedMovingAvgObsFakeQuantize,
)
from torchao.quantization.pt2e.observer import MovingAverageMinMaxObserver
from torchao.quantization.pt2e.quantizer import EdgeOrNode

Observer: TypeAlias = ObserverOrFakeQuantize
#: The observer of each annotated place; those of one domain have the same.
Observers: TypeAlias = dict[EdgeOrNode, Observer]
_PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)
_FAKE_QUANTISES = (FakeQuantize, FusedMovingAvgObsFakeQuantize)


def has_one_scale(observer: Observer | None) -> bool:
    """Return whether a value has one scale, which is known before it is run."""
    if observer is None or getattr(observer, "is_dynamic", False):
        return False
    return getattr(observer, "qscheme", None) in _PER_TENSOR


def least_known(observer: nn.Module) -> Tensor | None:
    """Return the least value that an observer or fake-quantise module knows; None if it keeps none."""
    observer = getattr(observer, "activation_post_process", observer)
    lowest = getattr(observer, "min_val", None)
    return lowest if isinstance(lowest, Tensor) else None


def value_of(place: EdgeOrNode) -> Node:
    """Return the value that is observed at a place: a node, or a node and what reads it there."""
    if isinstance(place, tuple):
        value, _ = place
        return value
    return place


def is_averaging(observer: Observer) -> TypeGuard[FakeQuantize]:
    """Return whether an observer is a fake-quantise module that averages the range of what is trained over time."""
    if type(observer) not in _FAKE_QUANTISES or observer.is_dynamic:
        return False
    return type(observer.activation_post_process) is MovingAverageMinMaxObserver


def shown(observer: Observer, x: Tensor) -> Tensor:
    """Show a value to an observer, and return what it makes of it.

    A range that is averaged over time covers the value from now on. Stock's follows in a hundred steps: a value that
    grows while a net is trained is clipped, and what is clipped has no gradient.

    Args:
        observer: the observer or fake-quantise module.
        x: a value of any shape.
    """
    if is_averaging(observer) and x.numel() and bool(observer.observer_enabled):
        known = observer.activation_post_process
        low, high = x.detach().to(known.min_val.dtype).aminmax()
        known.min_val.copy_(torch.minimum(known.min_val, low))
        known.max_val.copy_(torch.maximum(known.max_val, high))
    result: Tensor = observer(x)
    return result


def shown_alone(fake_quantize: FakeQuantizeBase, x: Tensor) -> Tensor:
    """Return what a fake-quantise module makes of a value in the range of that alone, which it has from now on."""
    known = fake_quantize.activation_post_process
    known.min_val.fill_(math.inf)
    known.max_val.fill_(-math.inf)
    result: Tensor = fake_quantize(x)
    return result


class StandIn(nn.Module):
    """All that is asked of it and that it does not have itself is its observer's.

    Args:
        observer: the observer or fake-quantise module in whose place it stands.
    """

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self.observer = observer

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("observer"), name)


class Limiter(StandIn):
    """Shows an observer less than all of a value; a subclass tells what."""

    def limited(self, x: Tensor) -> Tensor:
        """Return what the observer is shown of a value of any shape."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Show a value of any shape to the observer; return it, or what a fake-quantise module makes of it."""
        result = shown(self.observer, self.limited(x))
        return result if hasattr(self.observer, "fake_quant_enabled") else x


def put_in_front(
    observers: Observers,
    kind: type[StandIn],
    make: Callable[[Node, Observer], StandIn | None],
) -> None:
    """Put a module in the place of each observer of a value with one scale, the same for all places of the value.

    Args:
        observers: the observer of each annotated place; changed in place.
        kind: the module's class; an observer of this class stays.
        make: makes the module for a value and its observer; None leaves the observer where it is.
    """
    made: dict[tuple[int, Node], StandIn | None] = {}
    for place, observer in observers.items():
        if not has_one_scale(observer) or isinstance(observer, kind):
            continue
        value = value_of(place)
        key = (id(observer), value)
        if key not in made:
            made[key] = make(value, observer)
        observers[place] = made[key] or observer
