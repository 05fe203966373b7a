"""Products of all elements so far keep 16 bits from one window to the next."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.observer import MinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    QuantizationSpec,
    SharedQuantizationSpec,
)

from safe_arm._compat.annotations import (
    annotation_of,
    in_int16,
    int8_spec,
    is_calibrated,
    spec_at,
    specs_read,
)
from safe_arm.quantizer.graphs.graph_edits import calls, is_call, operands_of

_ATEN = torch.ops.aten
_PADDED = _ATEN.pad.default
_PART = _ATEN.slice.Tensor
_PRODUCT = _ATEN.mul.Tensor


def keep_scans_fine(model: GraphModule) -> None:
    """Give 16 bits to products of windows of which longer windows are computed.

    A small product is no step of a domain of 8 bits that the largest one needs, and what is computed of it is lost: the
    products of eight normal values have 10 dB less than their borders allow.

    Args:
        model: an annotated float graph; its annotations are changed in place.
    """
    for product in calls(model, _PRODUCT):
        spec = int8_spec(spec_at(product))
        if spec is None or not is_calibrated(spec):
            continue
        ones = _ones_of(product)
        if ones is not None:
            _widen_ones(product, *ones, spec)
        earlier = _earlier_ones(product)
        if earlier:
            _widen(product, earlier, spec)


def _ones_of(window: Node) -> tuple[Node, Node] | None:
    """Return the part of a value that a node multiplies the value by, and the same part behind ones; else None."""
    value, padded = operands_of(window, _PRODUCT)
    part, _ = operands_of(padded, _PADDED)
    source, _ = operands_of(part, _PART)
    return (part, padded) if source is value and value is not None else None


def _widen_ones(window: Node, part: Node, padded: Node, spec: QuantizationSpec) -> None:
    """Give 16 bits to a part behind ones: in the domain of an input of 8 bits, one is rounded."""
    if int8_spec(spec_at(part)) is None or len(padded.users) > 1:
        return
    shared = SharedQuantizationSpec((part, padded))
    specs_read(padded)[part] = in_int16(spec, MinMaxObserver)
    annotation_of(padded).output_qspec = shared
    specs_read(window)[padded] = shared


def _earlier_ones(product: Node) -> list[Node]:
    """Return the parts of a product that longer windows of it are multiplied by; none if anything else reads it."""
    parts = []
    for reader in product.users:
        if is_call(reader, _PART):
            parts.append(reader)
        elif not _is_window(reader) or reader.args[0] is not product:
            return []
    for part in parts:
        for padded in part.users:
            if not is_call(padded, _PADDED) or not all(map(_is_window, padded.users)):
                return []
    return parts


def _is_window(node: Node) -> bool:
    return _ones_of(node) is not None


def _widen(product: Node, parts: list[Node], spec: QuantizationSpec) -> None:
    annotation_of(product).output_qspec = in_int16(spec, MinMaxObserver)
    shared = SharedQuantizationSpec(product)
    for reader in product.users:
        specs_read(reader)[product] = shared
    for part in parts:
        annotation_of(part).output_qspec = shared
        for padded in part.users:
            specs_read(padded)[part] = shared
            annotation_of(padded).output_qspec = shared
            for window in padded.users:
                specs_read(window)[padded] = shared
