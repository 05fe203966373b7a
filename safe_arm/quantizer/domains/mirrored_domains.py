"""Give a negated value the mirrored domain of the value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torchao.quantization.pt2e.quantizer import (
    QuantizationSpec,
)

from safe_arm._compat.annotations import ScaleAndZero, annotation_of, derived_spec
from safe_arm.quantizer.domains.own_domains import is_joined
from safe_arm.quantizer.graphs.graph_edits import calls

_NEG = torch.ops.aten.neg.default


def mirror_domains(model: GraphModule) -> None:
    """Give what ``neg`` returns the mirrored qparams of what it reads: each code becomes another, none is rounded.

    Stock observes both, and what two histograms cut off differs. A symmetric domain is its own mirror. A negative that
    is joined with other values is observed with them.

    Args:
        model: an annotated float graph; its annotations are changed.
    """
    for node in calls(model, _NEG):
        annotation = annotation_of(node)
        if annotation is None or annotation.output_qspec is None:
            continue
        if is_joined(node):
            continue
        source = node.args[0]
        spec = annotation.input_qspec_map.get(source)
        if not isinstance(spec, QuantizationSpec) or spec.dtype is None:
            continue
        place = (source, node)
        annotation.output_qspec = derived_spec(spec, [place], mirrored_qparams)


def mirrored_qparams(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams in which the codes of a negative are those of the value, counted from the other end."""
    observer = observers[0]
    scale, zero_point = observer.calculate_qparams()
    if observer.dtype != torch.int8:
        return scale, zero_point
    return scale, int(observer.quant_min) + int(observer.quant_max) - zero_point
