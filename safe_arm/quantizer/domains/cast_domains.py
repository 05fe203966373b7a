"""Fractions have a domain apart from that of integers that were cast to floats.

Stock gives such a cast a step of 1 in the integer's type, for it is nothing in the backend then, and so it gives all
that a ``cat``, ``where`` or padding joins to it: a half beside integers becomes 0. TOSA has no clamp of 32 bits.
"""

from __future__ import annotations

from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationSpec,
)

from safe_arm._compat.annotations import (
    annotated_nodes,
    int8_spec,
    is_calibrated,
    place_of,
    shares,
    spec_at,
    specs_of,
    specs_read,
)
from safe_arm.core.island import activation_bounds, call_functions, op_name
from safe_arm.core.operators import VIEWS, named
from safe_arm.quantizer.graphs.graph_edits import moved_from

_PADS = named("constant_pad_nd pad")


def part_from_casts(model: GraphModule) -> None:
    """Let operators that join fractions to cast integers, or clamp them, read the integers in 8 bits.

    Args:
        model: an annotated float graph; its annotations are changed in place.
    """
    spec = _spec_of_activations(model)
    if spec is None:
        return
    for node in call_functions(model):
        if not shares(node) or not _needs_own_domain(node):
            continue
        for source, shared in list(specs_read(node).items()):
            place, _ = place_of(shared)
            if not isinstance(place, tuple):
                place = (source, node)
            if _is_of_cast(spec_at(place)):
                value, reader = place
                specs_read(reader)[value] = spec


def _spec_of_activations(model: GraphModule) -> QuantizationSpec | None:
    """Return the specification of 8 bits that an operator of a graph reads or gives values with."""
    for _, annotation in annotated_nodes(model.graph):
        for spec in specs_of(annotation):
            plain = int8_spec(spec)
            if plain is not None and is_calibrated(plain):
                return plain
    return None


def _needs_own_domain(node: Node) -> bool:
    """Tell whether an operator that shares a domain adds fractions to it, or is a clamp."""
    if activation_bounds(node) is not None:
        return True
    if op_name(node) in _PADS:
        return any(isinstance(each, float) and each % 1 for each in node.args)
    return not all(map(_counts, specs_read(node)))


def _counts(value: Node) -> bool:
    """Tell whether a value is an integer that was cast, or a view of one."""
    return _is_of_cast(spec_at(moved_from(value, VIEWS)))


def _is_of_cast(spec: object) -> bool:
    """Tell whether a specification is that of an integer that was cast."""
    return isinstance(spec, FixedQParamsQuantizationSpec) and spec.scale == 1
