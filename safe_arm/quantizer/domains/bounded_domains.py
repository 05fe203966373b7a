"""An inverse sine, cosine or hyperbolic tangent is read in the domain of its values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.observer import HistogramObserver, MinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationSpec,
)

from safe_arm._compat.annotations import ScaleAndZero, annotation_of, plain_spec
from safe_arm.quantizer.graphs.graph_edits import calls

_ATEN = torch.ops.aten

#: The largest magnitude that is read. That of ``atanh`` is stock's; a code times a scale may round up, but not to 1.
_BOUNDS: dict[Any, float] = {
    _ATEN.acos.default: 1 - 2.0**-20,
    _ATEN.asin.default: 1 - 2.0**-20,
    _ATEN.atanh.default: 0.999,
}


class _Inside:
    """Keeps every code of a domain between bounds: beyond them an operator gives NaN.

    Args:
        high: the upper bound; the lower one is as far below 0.
        options: what the observer takes.
    """

    def __init__(self, high: float, **options: Any) -> None:
        super().__init__(**options)
        self.high = high

    def forward(self, x_orig: Tensor) -> Tensor:
        """Look at a value between the bounds, and return it as it was."""
        super().forward(x_orig.clamp(-self.high, self.high))  # type: ignore[misc]
        return x_orig

    def calculate_qparams(self) -> ScaleAndZero:
        """Return scale and zero point of the range that was seen."""
        observer: Any = self
        scale, zero_point = super().calculate_qparams()  # type: ignore[misc]
        below = zero_point - observer.quant_min
        above = observer.quant_max - zero_point
        largest = observer.high / torch.maximum(below, above)
        return torch.minimum(scale, largest.to(scale)), zero_point


class HistogramInside(_Inside, HistogramObserver):
    """Stock's histogram of values between bounds, and no code beyond these."""


class MinMaxInside(_Inside, MinMaxObserver):
    """The range of values between bounds, and no code beyond these."""


_INSIDE: dict[type, Any] = {
    HistogramObserver: HistogramInside,
    MinMaxObserver: MinMaxInside,
}


def observe_between_bounds(model: GraphModule) -> None:
    """Observe what ``asin``, ``acos`` and ``atanh`` read.

    Stock fixes the domain from -1 to 1, of which a distance or a probability uses half. What nobody else reads is
    quantised in the same domain.

    Args:
        model: an annotated float graph; its annotations are changed in place.
    """
    for node in calls(model, *_BOUNDS):
        _observe(node)


def _observe(node: Node) -> None:
    source = node.args[0]
    annotation = annotation_of(node)
    if annotation is None or not isinstance(source, Node):
        return
    fixed = annotation.input_qspec_map.get(source)
    before = annotation_of(source)
    if before is None or not isinstance(fixed, FixedQParamsQuantizationSpec):
        return
    spec = plain_spec(before.output_qspec)
    if spec is None or spec.dtype != torch.int8 or fixed.dtype != torch.int8:
        return
    inside = _inside(spec, _BOUNDS[node.target])
    if inside is None:
        return
    annotation.input_qspec_map[source] = inside
    if len(source.users) == 1 and before.output_qspec is spec:
        before.output_qspec = inside


def _inside(spec: QuantizationSpec, bound: float) -> QuantizationSpec | None:
    """Return a specification whose observer stays between bounds; None if none of stock's observers watches a range."""
    constructor = getattr(spec.observer_or_fake_quant_ctr, "p", None)
    if spec.is_dynamic or constructor is None or constructor.func not in _INSIDE:
        return None
    observer = _INSIDE[constructor.func].with_args(high=bound, **constructor.keywords)
    return replace(spec, observer_or_fake_quant_ctr=observer)
