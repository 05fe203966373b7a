"""Rescale what is computed of 32-bit values to the domain that is promised."""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from safe_arm._compat.upstream import QuantArgs
from safe_arm.core.island import op_name
from safe_arm.passes.applied import CorrectivePass
from safe_arm.passes.compare_exactly import int32_domain, rescale_result
from safe_arm.passes.invariants.domains import input_qparams, output_qparams

_SUMS = frozenset(("aten::add", "aten::sub"))
_PRODUCT = "aten::mul"
#: Two scales that differ by less are one, which was multiplied in float32 or in double.
_ROUNDING = 1e-6


class RescaleExactSumsPass(CorrectivePass):
    """Rescales the sum or the product of two 32-bit values, and a product to the scale in which it is added.

    Stock rescales the result of what it has rescaled the operands of. What is computed of 32-bit values is promised in
    8 bits and stays as it is, and a product has the scale of its factors whatever is promised: both are read as codes
    of the promised domain.
    """

    def correct(self, node: Node) -> bool:
        computed, promised = _computed(node), output_qparams(node)
        if computed is None or promised is None or _are_one(computed, promised):
            return False
        rescale_result(node, computed, promised)
        return True


def _computed(node: Node) -> QuantArgs | None:
    """Return the domain in which stock leaves a sum of 32-bit values or a product in 32 bits; None for all others."""
    sources = list(input_qparams(node).values())
    promised = output_qparams(node)
    if len(sources) != 2 or promised is None or promised.per_channel:
        return None
    scales = [source.scale for source in sources if not source.per_channel]
    if op_name(node) in _SUMS and _are_wide(sources) and _are_one(*sources):
        return int32_domain(scales[0])
    if op_name(node) != _PRODUCT or len(scales) != 2:
        return None
    if promised.dtype == torch.int32 or _are_wide(sources):
        return int32_domain(math.prod(scales))
    return None


def _are_wide(domains: list[QuantArgs]) -> bool:
    return all(each.dtype == torch.int32 and not each.per_channel for each in domains)


def _are_one(first: QuantArgs, second: QuantArgs) -> bool:
    if first.dtype != second.dtype:
        return False
    return math.isclose(first.scale, second.scale, rel_tol=_ROUNDING)
