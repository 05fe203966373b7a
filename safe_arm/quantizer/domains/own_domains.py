"""Domains that an operator's output has for itself, and those that it shares with what is joined with it."""

from __future__ import annotations

from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    QuantizationSpec,
    SharedQuantizationSpec,
)

from safe_arm._compat.annotations import (
    annotated_nodes,
    annotation_of,
    int8_spec,
    shares,
    shares_place,
    spec_at,
    specs_read,
)
from safe_arm.core.island import op_name
from safe_arm.core.operators import named

_PADS = named("constant_pad_nd pad")


def shared_spec(node: Node) -> QuantizationSpec | None:
    """Return the specification that an operator's output of int8 shares with others; None if it shares none."""
    spec = spec_at(node)
    return int8_spec(spec) if isinstance(spec, SharedQuantizationSpec) else None


def give_own_domain(model: GraphModule, node: Node, spec: QuantizationSpec) -> None:
    """Give an operator's output a domain of its own; what shared its input's through the operator shares the new one.

    Args:
        model: an annotated float graph; its annotations are changed in place.
        node: the operator.
        spec: the specification of its output, from ``shared_spec``.
    """
    edge = (node.args[0], node)
    same = SharedQuantizationSpec(node)
    for _, annotation in annotated_nodes(model.graph):
        if shares_place(annotation.output_qspec, edge):
            annotation.output_qspec = same
        for source, shared in annotation.input_qspec_map.items():
            if shares_place(shared, edge):
                annotation.input_qspec_map[source] = same
    annotation_of(node).output_qspec = spec


def is_joined(value: Node) -> bool:
    """Tell whether an operator reads a value, or what is moved of it, in one domain with other values.

    All that is joined gets the qparams that the value has.
    """
    pending = [value]
    for each in pending:
        for reader in each.users:
            if not shares(reader):
                continue
            if len(specs_read(reader)) > 1 or _fills(reader):
                return True
            pending.append(reader)
    return False


def _fills(reader: Node) -> bool:
    """Tell whether an operator adds a number to the values that it moves that may lie outside their domain."""
    return op_name(reader) in _PADS and any(reader.args[2:])
