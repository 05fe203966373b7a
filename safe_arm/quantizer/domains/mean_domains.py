"""The mean of a norm and the sum of a softmax have domains with room for rows that were not calibrated."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.observer import MinMaxObserver
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from safe_arm._compat.annotations import (
    ScaleAndZero,
    annotation_of,
    is_calibrated,
    observed_by,
)
from safe_arm.core.operators import RESHAPES
from safe_arm.quantizer.graphs.graph_edits import (
    calls,
    moved_from,
    readers_of,
    static_sizes,
)
from safe_arm.quantizer.precision.fine_reciprocals import is_of_softmax
from safe_arm.quantizer.precision.int16_steps import WideObserver

_ATEN = torch.ops.aten

_SUM = _ATEN.sum.dim_IntList
_PRODUCT = _ATEN.mul.Tensor
_RECIPROCAL = _ATEN.reciprocal.default
_LOGARITHM = _ATEN.log.default
_CLAMP = _ATEN.clamp.default
_DIFFERENCE = _ATEN.sub.Tensor
#: The mean of so many values rarely reaches over half of their domain.
_TERMS = 16
#: Rows after which the range that was seen is the range.
_ROWS = 8
#: The most by which a domain is wider at either end, as a share of the range that was seen.
_MOST = 0.5


class RoomyObserver(MinMaxObserver):
    """Leaves room beyond the range of a value of which calibration showed few elements.

    The room at either end is half the range after up to 16 elements, and less than a hundredth after 800.
    """

    elements: Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.register_buffer("elements", torch.zeros(()))

    def forward(self, x_orig: Tensor) -> Tensor:
        """Look at a value, and return it."""
        self.elements += x_orig.numel()
        return super().forward(x_orig)

    def calculate_qparams(self) -> ScaleAndZero:
        """Return scale and zero point of the range with the room around it."""
        share = min(_MOST, _ROWS / max(1, int(self.elements)))
        room = (self.max_val - self.min_val) * share
        return self._calculate_qparams(self.min_val - room, self.max_val + room)


def leave_room_for_means(model: GraphModule) -> None:
    """Observe the mean that is subtracted from the values it was taken of with room for other rows.

    A row has one mean, so that a decoder's step shows calibration a single one a sample, and other rows saturate. The
    values' own domain is much wider than that of their mean, whose rounding is lost in theirs. In 16 bits the mean of
    any number of values has steps to spare.

    Args:
        model: an annotated float graph; its annotations are changed in place.
    """
    for node in calls(model, _SUM):
        scaled = _scaled(node)
        if scaled is None:
            continue
        if not _is_subtracted(scaled, moved_from(node.args[0], RESHAPES)):
            continue
        for each in (node, scaled):
            if not _has_8_bits(each):
                _leave_room(each, WideObserver)
            elif _terms(node) >= _TERMS:
                _leave_room(each)


def leave_room_for_softmaxes(model: GraphModule) -> None:
    """Observe the sum of a softmax, and its reciprocal or logarithm, with room for other rows.

    A row has one sum, so that attention pooling shows calibration a single one a sample. The probabilities of a row
    whose sum saturates do not add up to 1.

    Args:
        model: an annotated float graph; its annotations are changed in place.
    """
    for node in calls(model, _RECIPROCAL, _LOGARITHM):
        if is_of_softmax(node):
            divisor = node.args[0]
            _leave_room(node)
            _leave_room(divisor)
            if divisor.target is _CLAMP:
                _leave_room(divisor.args[0])


def _has_8_bits(node: Node) -> bool:
    annotation = annotation_of(node)
    spec = annotation.output_qspec if annotation is not None else None
    return getattr(spec, "dtype", None) == torch.int8


def _leave_room(node: Node, observer: type[MinMaxObserver] = RoomyObserver) -> None:
    """Let an observer that leaves room watch a value, if one of stock's observers watches its range."""
    annotation = annotation_of(node)
    if annotation is None:
        return
    spec = annotation.output_qspec
    if not isinstance(spec, QuantizationSpec) or spec.is_dynamic:
        return
    if is_calibrated(spec):
        annotation.output_qspec = observed_by(spec, observer)


def _scaled(node: Node) -> Node | None:
    """Return the only reader of a sum if it multiplies by a constant."""
    readers = list(node.users)
    if len(readers) != 1 or readers[0].target is not _PRODUCT:
        return None
    (reader,) = readers
    others = [each for each in reader.all_input_nodes if each is not node]
    return reader if all(each.op == "get_attr" for each in others) else None


def _terms(node: Node) -> int:
    """Return how many values are added for each element of a sum, 0 if that is not known."""
    before = static_sizes(node.args[0])
    after = static_sizes(node)
    if before is None or after is None:
        return 0
    results = prod(after)
    if not results:
        return 0
    return prod(before) // results


def _is_subtracted(mean: Node, values: Any) -> bool:
    """Tell whether all that reads a mean subtracts it from the values it was taken of."""
    for reader in readers_of(mean, RESHAPES):
        if reader.target is not _DIFFERENCE:
            return False
        if moved_from(reader.all_input_nodes[0], RESHAPES) is not values:
            return False
    return bool(mean.users)
