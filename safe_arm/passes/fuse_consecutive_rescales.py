"""Remove a RESCALE to 8 or 16 bits and the one back to 32 only if no rounding or saturation is lost."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm._compat import upstream
from safe_arm._compat.upstream import PassResult, exir_ops
from safe_arm.core.island import op_name
from safe_arm.passes.applied import applied

_CHOOSES = frozenset(("aten::maximum", "aten::minimum"))


class FuseConsecutiveRescalesPass(upstream.FuseConsecutiveRescalesPass):
    """Takes the place of the stock pass of this name (1.4 on).

    Stock drops every pair whose factors multiply to 1, and with it the rounding and the saturation between two
    operators of a chain: where codes saturate, a sum of sums is up to the whole range off. Only a pair of factors 1 may
    go, on values that are codes of the domain in between because maximum or minimum chose them from such codes.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        for second in list(graph_module.graph.nodes):
            first = second.args[0] if _is_rescale(second) else None
            if not isinstance(first, Node) or not _is_rescale(first):
                continue
            if not _cancel(first, second):
                continue
            if _drops_nothing(first):
                second.replace_all_uses_with(first.args[0])
                modified = True
            else:
                applied(self, first)
        if modified:
            graph_module.graph.eliminate_dead_code()
            graph_module.recompile()
        return PassResult(graph_module, modified)


def _is_rescale(node: Node) -> bool:
    return node.target == exir_ops.backend.tosa.RESCALE.default


def _cancel(first: Node, second: Node) -> bool:
    """Tell whether stock drops a RESCALE from 32 bits together with the one back."""
    wide, dtype, factors, zero_in, zero_out = _arguments(first)
    _, dtype_back, factors_back, zero_back, zero_there = _arguments(second)
    if dtype_back != torch.int32 or dtype == torch.int32:
        return False
    if wide.meta["val"].dtype != torch.int32:
        return False
    is_single = (len(factors), len(factors_back)) == (1, 1)
    is_one = abs(factors[0] * factors_back[0] - 1) < 1e-6
    is_same = (zero_out, zero_in) == (zero_back, zero_there)
    return is_single and is_one and is_same


def _arguments(rescale: Node) -> tuple[Any, ...]:
    """Return the operand of a RESCALE, its dtype, its factors and its zero points in and out."""
    return rescale.args[:5]


def _drops_nothing(first: Node) -> bool:
    wide, dtype, factors, _, zero_point = _arguments(first)
    return list(factors) == [1.0] and _are_codes(wide, dtype, zero_point)


def _are_codes(value: object, dtype: object, zero_point: object) -> bool:
    """Tell whether 32-bit values are codes of a domain, its zero point taken off."""
    if not isinstance(value, Node):
        return False
    if op_name(value) in _CHOOSES:
        return all(_are_codes(each, dtype, zero_point) for each in value.args[:2])
    if not _is_rescale(value) or not isinstance(value.args[0], Node):
        return False
    source, _, factors, zero_in, _ = _arguments(value)
    if list(factors) != [1.0] or zero_in != zero_point:
        return False
    return bool(source.meta["val"].dtype == dtype)
