"""Operators that no annotator knows are written with operators that one does, where an operand is constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import GraphModule, Node

from safe_arm.core.island import arguments_by_name
from safe_arm.quantizer.graphs.constant_values import (
    ConstantValues,
    ConstantWriter,
    rewrite_with_constants,
)
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_float32,
    replace_node,
    static_sizes,
)
from safe_arm.quantizer.graphs.own_writes import functional_of
from safe_arm.quantizer.spellings.constant_bounds import BOUNDS
from safe_arm.quantizer.spellings.mixed_constants import MIXED
from safe_arm.quantizer.spellings.spelled_bags import BAGS
from safe_arm.quantizer.spellings.spelled_indices import INDICES
from safe_arm.quantizer.spellings.spelled_scatters import SCATTERS

_SPELLINGS: dict[Any, Callable[..., Node | None]] = {**INDICES, **MIXED, **SCATTERS}


def spell_out_with_constants(model: GraphModule) -> None:
    """Write the operators of the tables with others, which compute the same float values.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_with_constants(model, _spell_out)


def _spell_out(node: Node, values: ConstantValues) -> bool:
    """Write one operator with others, and tell whether it was."""
    target: Any = functional_of(node) or node.target
    if target in BAGS:
        return _spell_out_bags(node, values)
    if not is_float32(node):
        return False
    written = None
    for table in (BOUNDS, _SPELLINGS):
        is_known = target in table and (table is BOUNDS or static_sizes(node))
        if written is None and is_known:
            arguments = arguments_by_name(node).values()
            written = table[target](ConstantWriter(node, values), *arguments)
    if written is None:
        return False
    replace_node(node, written)
    return True


def _spell_out_bags(node: Node, values: ConstantValues) -> bool:
    """Write the first result of an operator, if nothing reads the others."""
    results = [pick for pick in node.users if pick.users]
    if len(results) != 1 or not is_float32(results[0]) or results[0].args[1] != 0:
        return False
    arguments: list[Any] = list(arguments_by_name(node).values())
    arguments += [None] * (9 - len(arguments))
    target: Any = node.target
    written = BAGS[target](Writer(results[0]), values, *arguments)
    if written is None:
        return False
    replace_node(results[0], written)
    return True
