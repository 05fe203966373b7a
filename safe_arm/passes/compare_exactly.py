"""Compare two quantised values without rounding one of them first."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import Argument

from safe_arm._compat.upstream import QuantArgs, exir_ops
from safe_arm.core.island import op_name
from safe_arm.core.operators import named
from safe_arm.passes.applied import CorrectivePass
from safe_arm.passes.invariants.domains import input_qparams, output_qparams

_EXTREMES = frozenset(("aten::maximum", "aten::minimum"))
_COMPARISONS = named("eq ge gt le lt")
#: The most bits by which a RESCALE may enlarge all codes of a type: TOSA wants ``abs(code) < 2**(shift - 1)``.
_BITS = {torch.int8: 21, torch.int16: 13}
_INT32 = torch.iinfo(torch.int32)


class CompareExactlyPass(CorrectivePass):
    """Rescales the operands of maximum, minimum and comparisons so that no rounding decides.

    Stock rescales both operands to the smaller of their scales. That rounds the coarser one, and the result once more
    to the output's domain: a code off, or another truth value. Quantising is monotone, so ``quantize(max(a, b)) ==
    max(quantize(a), quantize(b))``: both operands of a maximum go straight to codes of the output. Those of a
    comparison go to a domain 2**21 times finer (int8; int16 2**13 times). Operands in one scale are left to stock,
    which is exact on them.
    """

    def correct(self, node: Node) -> bool:
        domain = _common_domain(node)
        if domain is None:
            return False
        sources = input_qparams(node)
        for index, source in sources.items():
            operand = _rescaled(node, node.args[index], source, domain)
            node.update_arg(index, operand)
        node.meta["input_qparams"] = dict.fromkeys(sources, domain)
        if op_name(node) in _EXTREMES:
            target = output_qparams(node)
            assert target is not None
            rescale_result(node, domain, target)
        return True


def _common_domain(node: Node) -> QuantArgs | None:
    """Return the int32 domain to compare a node's operands in; None if stock's is exact or ours would overflow."""
    name = op_name(node)
    sources = list(input_qparams(node).values())
    if name not in _EXTREMES | _COMPARISONS or len(sources) != 2:
        return None
    if sources[0].scale == sources[1].scale:
        return None
    if not all(map(_is_narrow, sources)):
        return None
    finest = max(source.scale / 2 ** _BITS[source.dtype] for source in sources)
    if name in _COMPARISONS:
        return int32_domain(finest)
    target = output_qparams(node)
    if target is None or not _is_narrow(target) or target.scale < finest:
        return None
    return int32_domain(target.scale)


def _is_narrow(qparams: QuantArgs) -> bool:
    return not qparams.per_channel and qparams.dtype in _BITS


def int32_domain(scale: float) -> QuantArgs:
    """Return the domain of 32-bit values in a scale."""
    return QuantArgs(
        scale=scale, zp=0, qmin=_INT32.min, qmax=_INT32.max, dtype=torch.int32
    )


def _rescaled(
    node: Node, value: Argument, source: QuantArgs, target: QuantArgs
) -> Node:
    """Insert a RESCALE of an operand before a node, or of the node itself behind it."""
    graph = node.graph
    factors = [source.scale / target.scale]
    with graph.inserting_after(node) if value is node else graph.inserting_before(node):
        result = graph.call_function(
            exir_ops.backend.tosa.RESCALE.default,
            (value, target.dtype, factors, source.zp, target.zp),
        )
    result.meta = without_qparams(node.meta)
    return result


def rescale_result(node: Node, computed: QuantArgs, promised: QuantArgs) -> None:
    """Insert a RESCALE behind a node, from the domain that it computes in to the one that is promised."""
    users = list(node.users)
    result = _rescaled(node, node, computed, promised)
    for user in users:
        user.replace_input_with(node, result)
    node.meta["output_qparams"] = {0: computed}


def without_qparams(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a node for one that computes in another domain."""
    return {key: meta[key] for key in meta if not key.endswith("put_qparams")}
