"""The domain of a clamp is as wide as its bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.observer import HistogramObserver, MinMaxObserver
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from safe_arm._compat.annotations import Q_ANNOTATION_KEY
from safe_arm.quantizer.own_domains import give_own_domain, shared_spec

_CLAMP = torch.ops.aten.clamp.default
_HARDTANH = torch.ops.aten.hardtanh.default
_RELU6 = torch.ops.aten.relu6.default


class _Within:
    """Shows an observer what a clamp makes of a value.

    Args:
        low: the clamp's lower bound.
        high: its upper bound.
        options: what the observer takes.
    """

    def __init__(self, low: float, high: float, **options: Any) -> None:
        super().__init__(**options)
        self.low = low
        self.high = high

    def forward(self, x_orig: Tensor) -> Tensor:
        """Look at a value between the bounds, and return it as it was."""
        super().forward(x_orig.clamp(self.low, self.high))  # type: ignore[misc]
        return x_orig


class HistogramWithin(_Within, HistogramObserver):
    """Stock's histogram of a value between the bounds of a clamp."""


class MinMaxWithin(_Within, MinMaxObserver):
    """The range of a value between the bounds of a clamp."""


_WITHIN: dict[type, Any] = {
    HistogramObserver: HistogramWithin,
    MinMaxObserver: MinMaxWithin,
}


def give_clamps_domains(model: GraphModule) -> None:
    """Let a clamp, a hardtanh or a relu6 have a domain that ends at its bounds.

    Stock shares the domain of the input. Its step is larger than need be, and the bounds are rounded to it, though
    values lie at them more often than anywhere else. The result gets a domain of its own. An input that nobody else
    reads is observed between the bounds: the two domains are equal and cost nothing, unless what reads the result
    shares its domain with other values. An input that others read would cost an operator, which no hardtanh is worth.

    Args:
        model: an annotated float graph; its annotations are changed in place.
    """
    for target in (_CLAMP, _HARDTANH, _RELU6):
        for clamp in model.graph.find_nodes(op="call_function", target=target):
            spec = shared_spec(clamp)
            if spec is not None and (_limit_source(clamp) or target is _CLAMP):
                give_own_domain(model, clamp, spec)


def _limit_source(clamp: Node) -> bool:
    """Observe what only a clamp reads between its bounds; return False where that cannot be."""
    source = clamp.args[0]
    if not isinstance(source, Node) or len(source.users) != 1:
        return False
    annotation = source.meta.get(Q_ANNOTATION_KEY)
    if annotation is None:
        return False
    spec = annotation.output_qspec
    if not isinstance(spec, QuantizationSpec) or spec.is_dynamic:
        return False
    constructor = getattr(spec.observer_or_fake_quant_ctr, "p", None)
    if constructor is None or constructor.func not in _WITHIN:
        return False
    low, high = _bounds(clamp)
    if clamp.kwargs or not all(isinstance(each, (int, float)) for each in (low, high)):
        return False
    within = _WITHIN[constructor.func].with_args(
        low=low, high=high, **constructor.keywords
    )
    annotation.output_qspec = replace(spec, observer_or_fake_quant_ctr=within)
    return True


def _bounds(clamp: Node) -> tuple[float, float]:
    """Return the bounds of a clamp, infinite where it has none."""
    if clamp.target is _RELU6:
        return 0.0, 6.0
    lowest, highest = (-1.0, 1.0) if clamp.target is _HARDTANH else (None, None)
    low: Any = clamp.args[1] if len(clamp.args) > 1 else lowest
    high: Any = clamp.args[2] if len(clamp.args) > 2 else highest
    return -math.inf if low is None else low, math.inf if high is None else high
