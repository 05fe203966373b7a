"""Values that a float operator only moves keep the domain they were quantised in."""

from __future__ import annotations

import operator

from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    QuantizationSpec,
    SharedQuantizationSpec,
)

from safe_arm._compat.annotations import annotated_nodes, plain_spec, spec_at
from safe_arm.core.island import op_name
from safe_arm.core.operators import ElementOrigin, named, operators

#: Operators whose results are elements of their first argument, or zero.
_MOVES = operators(
    ElementOrigin.VIEW, ElementOrigin.PART, ElementOrigin.EXTREME
) | named("as_strided dsplit linalg_diagonal masked_select tril triu")


def keep_moved_domains(model: GraphModule) -> None:
    """Let what reads a moved value share the domain in which that value was quantised.

    Stock does not annotate these operators and gives each of their readers a domain of its own, so that values which
    are codes already are rounded once more.

    Args:
        model: an annotated float graph; its annotations are changed in place.
    """
    for _, annotation in annotated_nodes(model.graph):
        for value, spec in annotation.input_qspec_map.items():
            if not isinstance(spec, QuantizationSpec) or spec.is_dynamic:
                continue
            origin = _origin(value)
            if origin is value:
                continue
            own = plain_spec(spec_at(origin))
            if own is not None and own.dtype == spec.dtype and not own.is_dynamic:
                annotation.input_qspec_map[value] = SharedQuantizationSpec(origin)


def _origin(value: Node) -> Node:
    """Return the value that operators without annotation moved."""
    while _moves(value):
        source = value.args[0]
        if not isinstance(source, Node):
            break
        value = source
    return value


def _moves(node: Node) -> bool:
    if spec_at(node) is not None:
        return False
    return node.target is operator.getitem or op_name(node) in _MOVES
