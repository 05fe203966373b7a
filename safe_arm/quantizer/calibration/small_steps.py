"""Small values keep their bits: a quantiser's step may be smaller than the least that the stock configs have.

That is 2**-16, so a value within 0.002, a factor of 1e-5 and the weights of a layer that reads raw samples (16-bit
audio, pascals) have a few codes or none. The least step is for ranges of nothing, and still holds for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.observer import UniformQuantizationObserverBase
from torchao.quantization.pt2e.quantizer import EdgeOrNode

from safe_arm._compat.annotations import ScaleAndZero
from safe_arm.acceleration import histogram_search
from safe_arm.core.attributes import stored_value
from safe_arm.core.island import CONV_LIKE, op_name
from safe_arm.core.operators import named
from safe_arm.quantizer.graphs.operator_schemas import written_buffers
from safe_arm.quantizer.graphs.stand_ins import Observer, Observers, value_of

#: The least steps that stock's configs have; a user's own stays.
_STOCK = (2.0**-16, 2.0**-12)
#: The least step of a range that is not empty. Ratios of steps have to fit into the shifts of a rescale.
_LEAST = 2.0**-60
#: The largest code of a bias; its step is the product of the steps of input and weight.
_LARGEST_BIAS = 2.0**30
#: Number of steps of 8 bits.
_STEPS = 255
#: The least share of a bound that is a step of more bits: a value has 12 bits, and the others are room beyond what
#: calibration showed, which stock's least step gives as well. With 13, a GELU is steeper than its table is fine.
_WIDE = 2.0**-11
#: The same of what an endless function gives: 14 bits, and room for values four times as large.
_OF_ENDLESS = 2.0**-13
#: Functions that are infinite where their argument is rounded to 0, so that it has the value of the last code. If
#: calibration showed such an argument, room beyond what it showed would be the largest error of all.
_ENDLESS = named("log log10 log2 reciprocal rsqrt")
_SUMS = named("add mean rsub sub sum")
#: The least step of a sum, as a share of what is added: a smaller one is less than the rounding of what is added, and
#: the rescale of the sum to it overflows.
_OF_ADDENDS = 2.0**-19

#: The observer of a layer's input, and its bias.
_Bias = tuple[Observer, Tensor]


@dataclass(frozen=True)
class _Limits:
    """Limits of the step of a value besides its range.

    Attributes:
        biases: the biases of the layer that reads it as its weight.
        added: the observers of what it is the sum of.
        arguments: the observers of the argument of the endless function that gives it; None for one that keeps no
            range.
        is_constant: all that is observed is constant.
    """

    biases: list[_Bias]
    added: list[Observer]
    arguments: list[Observer | None]
    is_constant: bool

    @property
    def wide_share(self) -> float:
        """The least share of a bound that is a step of more bits; 0 for a value that must not leave what was seen."""
        if self.is_constant:
            return 0.0
        if not self.arguments:
            return _WIDE
        return _OF_ENDLESS if all(map(_is_apart_from_zero, self.arguments)) else 0.0


def _is_apart_from_zero(observer: Observer | None) -> bool:
    """Tell whether an observer was shown values, and none that is rounded to 0."""
    if observer is None:
        return False
    nearest = torch.maximum(observer.min_val, -observer.max_val)
    step, _ = observer.calculate_qparams()
    return nearest.numel() > 0 and bool((nearest > step).all())


def allow_small_steps(observers: Observers) -> None:
    """Let observers find small steps for small values.

    Args:
        observers: the observer of each annotated place; changed in place. Fake-quantise modules are left alone.
    """
    biases: dict[int, list[_Bias]] = {}
    for place, observer in observers.items():
        sources: Sequence[Any] = getattr(observer, "obs_or_fqs", ())
        if len(sources) != 2 or not _is_bias(place):
            continue
        read, weight = sources
        value = value_of(place)
        bias = stored_value(value)
        biases.setdefault(id(weight), []).append((read, bias.detach().abs()))
    added = _added(observers)
    endless = _of_endless(observers)
    constants = _of_constants(observers)
    for observer in observers.values():
        if not isinstance(observer, UniformQuantizationObserverBase):
            continue
        if float(observer.eps) not in _STOCK:
            continue
        key = id(observer)
        limits = _Limits(
            biases.get(key, []),
            added.get(key, []),
            endless.get(key, []),
            key in constants,
        )
        find = partial(_calculate_qparams, observer, limits)
        observer._calculate_qparams = find  # type: ignore[method-assign]


def _added(
    observers: Observers,
) -> dict[int, list[Observer]]:
    """Return the observers of what is added, by the identity of the observer of the sum."""
    added: dict[int, list[Observer]] = {}
    for place, observer in observers.items():
        if not isinstance(place, Node) or op_name(place) not in _SUMS:
            continue
        for addend in place.all_input_nodes:
            read = observers.get((addend, place))
            if hasattr(read, "min_val"):
                added.setdefault(id(observer), []).append(read)
    return added


def _of_endless(observers: Observers) -> dict[int, list[Observer | None]]:
    """Return the observers of what functions read that are infinite at 0, by the identities of their results."""
    arguments: dict[int, list[Observer | None]] = {}
    for place, observer in observers.items():
        if not isinstance(place, Node) or op_name(place) not in _ENDLESS:
            continue
        read = observers.get((place.all_input_nodes[0], place))
        known = read if hasattr(read, "min_val") else None
        arguments.setdefault(id(observer), []).append(known)
    return arguments


def _of_constants(observers: Observers) -> set[int]:
    """Return the identities of the observers of constants alone, which never leave the range that was seen."""
    constants: set[int] = set()
    values: set[int] = set()
    written: dict[GraphModule, tuple[str, ...]] = {}
    for place, observer in observers.items():
        value = value_of(place)
        model = value.graph.owning_module
        assert model is not None
        if model not in written:
            written[model] = written_buffers(model)
        is_constant = value.op == "get_attr" and value.target not in written[model]
        (constants if is_constant else values).add(id(observer))
    return constants - values


def _is_bias(place: EdgeOrNode) -> bool:
    """Tell whether a place is where a layer reads its bias."""
    if isinstance(place, Node):
        return False
    value, layer = place
    return (
        value.op == "get_attr"
        and op_name(layer) in CONV_LIKE
        and value in layer.args[2:]
    )


def _calculate_qparams(
    observer: UniformQuantizationObserverBase,
    limits: _Limits,
    low: Tensor,
    high: Tensor,
) -> ScaleAndZero:
    """Return scales and zero points for ranges, as the observer's class does with a smaller least step."""
    stock = observer.eps
    if low.numel():
        observer.eps = _least_step(observer, limits, low, high)
    try:
        scale, zero_point = type(observer)._calculate_qparams(observer, low, high)
    finally:
        observer.eps = stock
    return scale, zero_point


def _least_step(
    observer: UniformQuantizationObserverBase,
    limits: _Limits,
    low: Tensor,
    high: Tensor,
) -> Tensor:
    largest = torch.maximum(low.abs(), high.abs())
    least = torch.full_like(largest, _LEAST)
    added = limits.added
    if int(observer.quant_max) - int(observer.quant_min) > _STEPS:
        if limits.wide_share:
            least = torch.minimum(largest * limits.wide_share, observer.eps)
        added = []
    least = torch.where(largest > 0, least, observer.eps)
    for addend in added:
        reached = torch.maximum(addend.max_val, -addend.min_val)
        least = torch.maximum(least, reached * _OF_ADDENDS)
    for read, bias in limits.biases:
        with histogram_search.on_floats(read):
            step, _ = read.calculate_qparams()
        reached = bias / (step * _LARGEST_BIAS)
        if reached.shape != largest.shape:
            reached = reached.max()
        least = torch.maximum(least, reached)
    return least
