"""The factor of a norm has a domain that a row without variance does not stretch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.nn import Module
from torchao.quantization.pt2e import ObserverOrFakeQuantize
from torchao.quantization.pt2e.quantizer import (
    QuantizationSpec,
)

from safe_arm._compat.annotations import (
    ScaleAndZero,
    annotation_of,
    derived_spec,
    observer_of,
    plain_spec,
)
from safe_arm.core.operators import RESHAPES
from safe_arm.quantizer.graphs.graph_edits import calls, readers_of
from safe_arm.quantizer.graphs.stand_ins import least_known

_RSQRT = torch.ops.aten.rsqrt.default
_PRODUCT = torch.ops.aten.mul.Tensor
#: Calibration does not know the least of fewer variances: one may be so many times less.
_FEW = 32
_ROOM = 1.5
#: The domain of 16 bits reaches to that of a variance so many times less, but for the first piece of the table, whose
#: other end has no root: a row that varies less than all of calibration is not clipped.
_SPARE = 16
_PIECE = 128


def limit_norm_factors(model: GraphModule) -> None:
    """Let the domain of an inverse square root end where its argument is half a step: what is less has code 0.

    A row of equal values, such as padding, has no variance: its factor is the
    inverse root of epsilon, up to a million, and multiplies 0. In a domain that reaches so far all other factors have
    code 0. Otherwise it ends at the largest factor of calibration, or a little above if calibration has few; of 16 bits
    it ends above.

    Args:
        model: an annotated float graph; its annotations are changed.
    """
    for node in calls(model, _RSQRT):
        annotation = annotation_of(node)
        if annotation is None or not _is_factor(node):
            continue
        spec = annotation.output_qspec
        variance = plain_spec(annotation.input_qspec_map.get(node.args[0]))
        if not isinstance(spec, QuantizationSpec) or variance is None:
            continue
        if spec.is_dynamic or variance.is_dynamic:
            continue
        if not _keeps_bounds(variance):
            continue
        place = (node.args[0], node)
        annotation.output_qspec = derived_spec(spec, [place], _of_inverse_root)


def _is_factor(root: Node) -> bool:
    """Tell whether all that reads a value multiplies by it."""
    targets = {reader.target for reader in readers_of(root, RESHAPES)}
    return targets == {_PRODUCT}


def _keeps_bounds(spec: QuantizationSpec) -> bool:
    """Tell whether the observer of a specification keeps the least value that it is shown; a user's may not."""
    observer = observer_of(spec)
    return observer is not None and least_known(observer) is not None


def _of_inverse_root(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of an inverse square root for the observer of its argument."""
    variance = observers[0]
    step, zero_point = variance.calculate_qparams()
    lowest = lowest_seen(variance)
    assert lowest is not None
    least = torch.maximum(lowest.to(step), step / 2)
    if variance.dtype != torch.int8:
        least = torch.minimum(least, torch.maximum(least / _SPARE, _PIECE * step))
    highest = least.rsqrt()
    if variance.dtype == torch.int8:
        steps = variance.quant_max - variance.quant_min
        return highest / steps, torch.full_like(zero_point, variance.quant_min)
    return highest / variance.quant_max, torch.zeros_like(zero_point)


def lowest_seen(observer: ObserverOrFakeQuantize) -> Tensor | None:
    """Return the least value that an observer was shown, or less if it was shown few; None if it keeps none."""
    lowest = least_known(observer)
    if lowest is not None and _has_seen_few(observer):
        lowest = lowest / _ROOM
    return lowest


def _has_seen_few(observer: Module) -> bool:
    """Tell whether an observer has counted few values; one without a histogram counts none."""
    observer = getattr(observer, "activation_post_process", observer)
    histogram = getattr(observer, "histogram", None)
    return histogram is not None and bool(histogram.sum() < _FEW)
