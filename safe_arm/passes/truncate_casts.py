"""Truncate a float that is cast to an integer: TOSA's CAST rounds it (known issue S22)."""

from __future__ import annotations

import torch
from torch.fx import Node

from safe_arm._compat.upstream import exir_ops
from safe_arm.core.island import op_name
from safe_arm.core.operators import VIEWS, named
from safe_arm.passes.applied import CorrectivePass
from safe_arm.passes.invariants.domains import output_qparams

_CAST = "dim_order_ops::_to_dim_order_copy"
_INTEGERS = (
    torch.int8,
    torch.int16,
    torch.int32,
)
_WHOLE = named("floor ceil round trunc")
_ATEN = exir_ops.edge.aten


class TruncateCastsPass(CorrectivePass):
    """Takes the floor or the ceil of a float that is cast to an integer, whichever is nearer to 0.

    DecorateFp32toInt32CastingPass does so for casts of float32 to int32 alone. TOSA's CAST rounds to the nearest
    integer. The pass runs while quantisers are still whole: taken apart, they round and cast as well.
    """

    def correct(self, node: Node) -> bool:
        if not _rounds(node):
            return False
        source = node.all_input_nodes[0]
        whole = _truncated(source, node)
        node.replace_input_with(source, whole)
        return True


def _rounds(node: Node) -> bool:
    """Tell whether a node is a cast that rounds, and that stock leaves as it is."""
    if op_name(node) != _CAST:
        return False
    source = node.all_input_nodes[0]
    before = source.meta["val"].dtype
    after = node.meta["val"].dtype
    if not before.is_floating_point:
        return False
    if after not in _INTEGERS:
        return False
    if before == torch.float32 and after == torch.int32:
        return False
    return not _is_whole(source) and not _holds_codes(source)


def _is_whole(node: Node) -> bool:
    """Tell whether a value is a whole number, as a floor, or a choice of two, is."""
    name = op_name(node)
    if name == "aten::where":
        choices = node.all_input_nodes[1:]
        return all(map(_is_whole, choices))
    if node.kwargs:  # the decimals that a round keeps
        return False
    return name in _WHOLE


def _holds_codes(node: Node) -> bool:
    """Tell whether a node is a quantised value, which has the dtype of a float until it becomes TOSA's."""
    while output_qparams(node) is None:
        if op_name(node) not in VIEWS:
            return False
        node = node.all_input_nodes[0]
    return True


def _truncated(source: Node, cast: Node) -> Node:
    """Insert the operators that truncate a value in front of its cast."""
    graph = cast.graph
    value = source.meta["val"]
    shape = (1,) * value.dim()
    with graph.inserting_before(cast):
        zero = graph.call_function(
            _ATEN.full.default,
            (shape, 0.0),
            {"dtype": value.dtype},
        )
        not_negative = graph.call_function(
            _ATEN.ge.Tensor,
            (source, zero),
        )
        floor = graph.call_function(
            _ATEN.floor.default,
            (source,),
        )
        ceil = graph.call_function(
            _ATEN.ceil.default,
            (source,),
        )
        whole = graph.call_function(
            _ATEN.where.self,
            (not_negative, floor, ceil),
        )
    for node in (zero, not_negative, floor, ceil, whole):
        node.meta = dict(cast.meta)
    whole.meta["val"] = value
    return whole
