"""Replace the number of a mask that no rescale can represent by a nearer one, if the readers of the sum allow it."""

from __future__ import annotations

import math

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules
from safe_arm.quantizer.domains.extreme_domains import extremes_of
from safe_arm.quantizer.domains.saturated_domains import reach_of
from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import (
    MOVES,
    Writer,
    calls,
    readers_of,
)
from safe_arm.quantizer.graphs.mask_bounds import LOWEST

_ATEN = torch.ops.aten
_ADD = _ATEN.add.Tensor
#: Operators that may have the number of a mask among their arguments.
_NUMBERED = (
    _ATEN.mul.Tensor,
    _ATEN.masked_fill.Scalar,
    _ATEN.where.ScalarOther,
    _ATEN.where.ScalarSelf,
    _ATEN.where.Scalar,
)


def bring_masks_near(model: GraphModule) -> None:
    """Raise a number below -30,000 to that, if it is added to values that only maxima or saturating functions read.

    A sum is computed in 32 bits at the scale of its wider operand: a mask of -1e9 leaves nothing of other values, and
    the lowest float has no scale at all. The masks of softmaxes are treated elsewhere.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        values = ConstantValues(module)
        for node in calls(module, _ADD):
            if _hides_low_values(node):
                _bring_constant_near(node, values)
        for node in module.graph.nodes:
            if node.target in _NUMBERED and _is_hidden(node):
                node.args = tuple(map(_near, node.args))
        module.recompile()


def _hides_low_values(total: Node) -> bool:
    """Return whether all that reads a sum has the same result for any two numbers that are low enough."""
    _, sign = extremes_of(total)
    return sign > 0 or reach_of(total, torch.int8).low > -math.inf


def _bring_constant_near(total: Node, values: ConstantValues) -> None:
    for operand in total.args:
        value = values.of(operand)
        if value is None or not value.is_floating_point():
            continue
        if bool((value < LOWEST).any()):
            near = Writer(total).constant(value.clamp(min=LOWEST), "near")
            total.replace_input_with(operand, near)  # type: ignore[arg-type]


def _is_hidden(mask: Node) -> bool:
    """Return whether a value is only added, to what hides low values."""
    sums = []
    for reader in readers_of(mask, MOVES):
        if reader.target != _ADD or reader.kwargs:
            return False
        sums.append(reader)
    return bool(sums) and all(map(_hides_low_values, sums))


def _near(argument: object) -> object:
    if isinstance(argument, float) and argument < LOWEST:
        return LOWEST
    return argument
