"""A condition that is computed with is a choice between 1 and 0.

No profile of integers casts a boolean to a float, so that the peaks of a heat map, ``heat * (pooled == heat).float()``,
cut the delegate in two. So does a choice between other numbers, such as the bits of a code, ``torch.where(x > 0, 1.0,
-1.0)``. A ``where`` of two constants is delegated.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias, TypeGuard

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules
from safe_arm.quantizer.graphs.graph_edits import Writer, has_dtype, is_float32

_ATEN = torch.ops.aten
#: Casts, whose dtype is that of their result.
_CASTS = (
    _ATEN.to.dtype,
    _ATEN.to.device,
    _ATEN.to.dtype_layout,
    _ATEN.to.other,
    _ATEN.type_as.default,
    _ATEN._to_copy.default,
)
#: Arithmetic that takes a boolean beside a float.
_ARITHMETIC = (_ATEN.add.Tensor, _ATEN.mul.Tensor, _ATEN.div.Tensor)

#: The choices by each condition between two numbers.
_Choices: TypeAlias = dict[tuple[Node, float, float], Node]


def choose_numbers(model: GraphModule) -> None:
    """Write each float of 32 bits that a boolean becomes, or chooses of two numbers, as a ``where`` of two constants.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        chosen: _Choices = {}
        for node in list(module.graph.nodes):
            if not is_float32(node):
                continue
            if node.target in _CASTS:
                _choose(node, chosen)
            elif node.target is _ATEN.where.Scalar:
                _choose_between(node, chosen)
            elif node.target in _ARITHMETIC:
                _choose_operands(node, chosen)
        if chosen:
            module.graph.eliminate_dead_code()
            module.recompile()


def _choose(cast: Node, chosen: _Choices) -> None:
    condition = cast.args[0]
    if not _is_condition(condition):
        return
    if all(reader.op == "output" for reader in cast.users):
        return
    cast.replace_all_uses_with(_choice(cast, condition, chosen))


def _choose_between(choice: Node, chosen: _Choices) -> None:
    condition = choice.args[0]
    numbers: Any = choice.args[1:]
    if not _is_condition(condition) or not all(map(math.isfinite, numbers)):
        return
    choice.replace_all_uses_with(_choice(choice, condition, chosen, *numbers))


def _choose_operands(node: Node, chosen: _Choices) -> None:
    for operand in node.all_input_nodes:
        if _is_condition(operand):
            node.replace_input_with(operand, _choice(node, operand, chosen))


def _choice(
    node: Node,
    condition: Node,
    chosen: _Choices,
    *numbers: float,
) -> Node:
    """Return the choice by a condition between two numbers, which is written before its first reader."""
    one, other = numbers or (1.0, 0.0)
    key = (condition, one, other)
    if key not in chosen:
        write = Writer(node)
        shape = [1] * condition.meta["val"].dim()
        where_true = write.constant(torch.full(shape, one), "one")
        where_false = write.constant(torch.full(shape, other), "other")
        chosen[key] = write(_ATEN.where.self, condition, where_true, where_false)
    return chosen[key]


def _is_condition(node: object) -> TypeGuard[Node]:
    """Return whether an operator gives a boolean."""
    return has_dtype(node, torch.bool) and node.op == "call_function"
