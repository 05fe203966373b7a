"""A piece of a function that is chosen by a bound is computed of the values that it is chosen for.

``where(x > 0, x, exp(x) - 1)`` computes the exponential of positive values, too. Nothing takes it, but it widens the
domain of what is chosen, from 4 to 54 for an ``x`` up to 4, and a logarithm or reciprocal beyond the bound is infinite.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.calls import called
from safe_arm.core.exceptions import attempted
from safe_arm.core.island import graph_modules
from safe_arm.quantizer.graphs.constant_values import ConstantValues, number_of
from safe_arm.quantizer.graphs.graph_edits import Writer, calls, tensor_of
from safe_arm.quantizer.graphs.operator_schemas import is_mutable, is_pointwise
from safe_arm.quantizer.masks.runtime_masks import WHERES

_ATEN = torch.ops.aten
_CLAMP = _ATEN.clamp.default
#: Lower and upper bound of each value that is clamped.
_Limits: TypeAlias = dict[Node, tuple[float | None, ...]]
#: Comparisons, and whether they hold above the number.
_COMPARISONS: dict[Any, bool] = {
    _ATEN.gt.Scalar: True,
    _ATEN.gt.Tensor: True,
    _ATEN.ge.Scalar: True,
    _ATEN.ge.Tensor: True,
    _ATEN.lt.Scalar: False,
    _ATEN.lt.Tensor: False,
    _ATEN.le.Scalar: False,
    _ATEN.le.Tensor: False,
}


def limit_pieces(model: GraphModule) -> None:
    """Clamp what a piece of a function reads to the side of the bound on which it is chosen.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        values = ConstantValues(module)
        for choice in calls(module, *WHERES):
            _limit(choice, values)
        module.recompile()


def _limit(choice: Node, values: ConstantValues) -> None:
    condition, *pieces = choice.args
    if not isinstance(condition, Node) or condition.target not in _COMPARISONS:
        return
    source, other = condition.args
    number = _number(values, other)
    value = tensor_of(source)
    if number is None or value is None or not value.is_floating_point():
        return
    assert isinstance(source, Node)
    above = _COMPARISONS[condition.target]
    for piece in pieces:
        if isinstance(piece, Node):
            _limit_reads(choice, piece, _limits(source, number, above))
        above = not above


def _number(values: ConstantValues, bound: object) -> float | None:
    """Return a finite bound; None if it is not one number, or not constant."""
    number = number_of(values.of(bound))
    if isinstance(bound, (int, float)):
        number = float(bound)
    return number if number is not None and math.isfinite(number) else None


def _limits(source: Node, number: float, above: bool) -> _Limits:
    """Return what is bounded on one side of a number: what is compared, and what it is the absolute value of."""
    if above:
        return {source: (number,)}
    limits: _Limits = {source: (None, number)}
    if source.target is _ATEN.abs.default:
        limits[source.all_input_nodes[0]] = (-number, number)
    return limits


def _limit_reads(choice: Node, piece: Node, limits: _Limits) -> None:
    """Clamp values where they are read by what computes a piece and nothing else."""
    limited: dict[Node, Node] = {}
    within = _computed_alone(choice, piece, limits)
    for node in choice.graph.nodes:
        if node not in within:
            continue
        for source, bounds in limits.items():
            arguments = (source, *bounds)
            is_limit = node.target is _CLAMP and node.args == arguments
            if source not in node.all_input_nodes or is_limit:
                continue
            if not _is_finite(node, source, bounds):
                continue
            if source not in limited:
                limited[source] = Writer(node)(_CLAMP, *arguments)
            node.replace_input_with(source, limited[source])


def _is_finite(node: Node, source: Node, bounds: tuple[float | None, ...]) -> bool:
    """Tell whether an operator of one value is finite at its bounds; a logarithm of a value up from 0 stays float."""
    if node.all_input_nodes != [source]:
        return True
    for bound in bounds:
        if bound is None:
            continue
        number = torch.tensor(bound)
        value = attempted(called, node, {source: number}.__getitem__)
        if isinstance(value, Tensor) and not bool(value.isfinite().all()):
            return False
    return True


def _computed_alone(choice: Node, piece: Node, limits: _Limits) -> set[Node]:
    """Return the pointwise operators behind bounded values whose results only a piece is computed of."""
    within: set[Node] = set()
    pending = [piece]
    while pending:
        node = pending.pop()
        readers = set(node.users) - within - {choice}
        if readers or node in limits or tensor_of(node) is None:
            continue
        if is_mutable(node) or not is_pointwise(node):
            continue
        within.add(node)
        pending += node.all_input_nodes
    return within
