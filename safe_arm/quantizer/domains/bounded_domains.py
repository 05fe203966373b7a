"""An inverse sine, cosine or hyperbolic tangent is read in the domain of its values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.observer import MinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
)

from safe_arm._compat.annotations import (
    ScaleAndZero,
    annotation_of,
    int8_spec,
    is_calibrated,
    observed_by,
)
from safe_arm.quantizer.graphs.graph_edits import calls

_ATEN = torch.ops.aten

#: The largest magnitude that is read. That of ``atanh`` is stock's; a code times a scale may round up, but not to 1.
_BOUNDS: dict[Any, float] = {
    _ATEN.acos.default: 1 - 2.0**-20,
    _ATEN.asin.default: 1 - 2.0**-20,
    _ATEN.atanh.default: 0.999,
}


class InsideObserver(MinMaxObserver):
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
        super().forward(x_orig.clamp(-self.high, self.high))
        return x_orig

    def calculate_qparams(self) -> ScaleAndZero:
        """Return scale and zero point of the range that was seen."""
        scale, zero_point = super().calculate_qparams()
        below = zero_point - self.quant_min
        largest = self.high / torch.maximum(below, self.quant_max - zero_point)
        return torch.minimum(scale, largest.to(scale)), zero_point


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
    source = node.all_input_nodes[0]
    annotation = annotation_of(node)
    before = annotation_of(source)
    if annotation is None or before is None:
        return
    fixed = annotation.input_qspec_map.get(source)
    spec = int8_spec(before.output_qspec)
    if not isinstance(fixed, FixedQParamsQuantizationSpec):
        return
    if fixed.dtype != torch.int8 or spec is None or not is_calibrated(spec):
        return
    inside = observed_by(spec, InsideObserver, high=_BOUNDS[node.target])
    annotation.input_qspec_map[source] = inside
    if len(source.users) == 1 and before.output_qspec is spec:
        before.output_qspec = inside
