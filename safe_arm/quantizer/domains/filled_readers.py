"""The readers of a value that is filled with a number: maxima take it only where there is nothing else.

Views, slices and concatenations lie between the two, as in a dilation, whose windows are slices of a padded value, or
an unfolded one. A maximum that maxima alone read may be the number too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.fx import Node

from safe_arm.core.island import op_name
from safe_arm.core.operators import ElementOrigin, operators
from safe_arm.quantizer.graphs.graph_edits import tensor_of

_ATEN = torch.ops.aten

#: Operators of two values that take the greater one, and the less.
GREATER = _ATEN.maximum.default
LESS = _ATEN.minimum.default
#: Operators that take the greatest of their values, or its place.
GREATEST = (
    # ReLU makes zero of the number, and every domain has a code for zero.
    _ATEN.relu.default,
    _ATEN.amax.default,
    _ATEN.max.default,
    _ATEN.max.dim,
    _ATEN.max_pool1d.default,
    _ATEN.max_pool2d.default,
    _ATEN.argmax.default,
)
#: Operators that take the least.
LEAST = (
    _ATEN.amin.default,
    _ATEN.min.default,
    _ATEN.min.dim,
    _ATEN.argmin.default,
)
#: Operators of both kinds whose results may be the number, in a tensor of their own.
_KEEPING = (
    GREATER,
    LESS,
    _ATEN.amax.default,
    _ATEN.amin.default,
    _ATEN.max_pool2d.default,
)
#: Operators whose results are elements of their first argument, by place.
MOVES = operators(ElementOrigin.VIEW, ElementOrigin.PART)
_JOINS = operators(ElementOrigin.JOINED)
_CASTS = operators(ElementOrigin.CAST)


@dataclass
class Readers:
    """All that reads a value filled with a number, up to the last maxima.

    Attributes:
        moved: the value, and what it is moved to, joined in or compared to, before the last comparison.
        last: the maxima, or minima, whose results anything may read.
    """

    moved: list[Node] = field(default_factory=list)
    last: list[Node] = field(default_factory=list)

    def comparing(self) -> list[Node]:
        """Return the operators that compare or join a value with others."""
        found = []
        for node in (*self.moved[1:], *self.last):
            if node.target in (GREATER, LESS) or op_name(node) in _JOINS:
                found.append(node)
        return found


def readers_of_fill(node: Node, number: float) -> Readers | None:
    """Return what reads a value that is filled with a number.

    Args:
        node: the value.
        number: the number.

    Returns:
        None if it is read by anything but maxima, or minima where the number is positive.
    """
    extremes = (*GREATEST, GREATER) if number < 0 else (*LEAST, LESS)
    hidden = _hidden(_reached(node, extremes), extremes)
    if node not in hidden:
        return None
    readers = Readers([node])
    for each in readers.moved:
        for reader in each.users:
            if reader in readers.moved or reader in readers.last:
                continue
            if reader in hidden:
                readers.moved.append(reader)
            else:
                readers.last.append(reader)
    return readers


def _reached(node: Node, extremes: tuple[object, ...]) -> list[Node]:
    """Return a value and all that may hold the number, each behind what it is computed of."""
    reached = {node}
    pending = [node]
    for each in pending:
        for reader in each.users:
            if reader in reached:
                continue
            if _moves(reader) or (reader.target in extremes and _keeps(reader)):
                reached.add(reader)
                pending.append(reader)
    return [each for each in node.graph.nodes if each in reached]


def _hidden(reached: list[Node], extremes: tuple[object, ...]) -> set[Node]:
    """Return the values in which only extremes see the number."""
    hidden: set[Node] = set()
    for node in reversed(reached):
        is_hidden = bool(node.users)
        for reader in node.users:
            if reader.target not in extremes and reader not in hidden:
                is_hidden = False
        if is_hidden:
            hidden.add(node)
    return hidden


def _keeps(node: Node) -> bool:
    return node.target in _KEEPING


def _moves(node: Node) -> bool:
    """Tell whether an operator moves the elements of a value, and changes none."""
    name = op_name(node)
    if name in _CASTS:
        before, after = tensor_of(node.args[0]), tensor_of(node)
        return before is not None and after is not None and before.dtype == after.dtype
    return name in MOVES or name in _JOINS
