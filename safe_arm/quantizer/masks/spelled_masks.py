"""Rewrite additive masks in the one form that is recognised: a low number, added where a score is hidden."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules, op_name
from safe_arm.core.operators import ElementOrigin, operators
from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    has_dtype,
    is_call,
    lower_bound,
    replace_node,
    tensor_of,
)
from safe_arm.quantizer.graphs.mask_bounds import MASKED
from safe_arm.quantizer.graphs.own_writes import functional_of

_ATEN = torch.ops.aten
#: In the place of minus infinity.
_LEAST = -1e30
#: A number below all integers of 64 bits.
_BEYOND_INTEGERS = -1e19
_MOVES = operators(ElementOrigin.VIEW, ElementOrigin.PART)


def spell_out_masks(model: GraphModule) -> None:
    """Write a mask that is subtracted, one of ``keep - 1``, and one that is filled in place as masks are known.

    ``x - (1 - keep) * 1e9`` becomes ``x + (1 - keep) * -1e9``, ``(keep - 1) * 1e9`` becomes ``(1 - keep) * -1e9``, and
    ``masked_fill_`` of a value that nothing else reads ``masked_fill``. ``log(keep)`` of a condition is
    a choice between 0 and a low number, and scores are scaled before they are filled in instead of behind. In any other
    spelling the number widens the domain of the scores, which have one code for each several millions then.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        values = ConstantValues(module)
        for node in list(module.graph.nodes):
            rule = _RULES.get(node.target)
            if rule is not None:
                rule(node)
            if node.target in _FILLS:
                node.target = functional_of(node) or node.target
            if node.target == _ATEN.eq.Scalar:
                _compare_apart(node, values)
            if node.target in _SCALES:
                _scale_before_fill(node, values)
        module.recompile()


def _spell_out_product(node: Node) -> None:
    """Write a product with a large number as one with a low number, if it is known to be negative or subtracted."""
    factor = node.args[1]
    if not isinstance(factor, (int, float)) or factor < -MASKED:
        return
    source = node.all_input_nodes[0]
    if _is_less_one(source) and _readers(node, _ATEN.add.Tensor):
        keep = source.args[0]
        hidden = Writer(node)(_ATEN.rsub.Scalar, keep, 1)
        node.args = (hidden, -factor)
        if not source.users:
            source.graph.erase_node(source)
        return
    differences = []
    for difference, mask in _readers(node, _ATEN.sub.Tensor):
        scores, subtracted = difference.args
        if subtracted is not mask or scores is mask or not isinstance(scores, Node):
            return
        differences.append(difference)
    if differences:
        node.args = (source, -factor)
    for difference in differences:
        difference.target = _ATEN.add.Tensor


def _spell_out_logarithm(node: Node) -> None:
    """Choose between 0 and a low number, or the bound that it is clamped to, for the logarithm of a condition.

    Clamps to the least of all floats are left out before.
    """
    cast = node.args[0]
    if not is_call(cast, _ATEN.to.dtype):
        return
    condition = cast.args[0]
    if not has_dtype(condition, torch.bool):
        return
    mask = node
    number = -math.inf
    for reader in node.users:
        bound = lower_bound(reader)
        if len(node.users) == 1 and bound is not None and bound <= MASKED:
            mask = reader
            number = bound
    number = max(number, _LEAST)
    chosen = Writer(node)(_ATEN.where.Scalar, condition, 0.0, number)
    mask.replace_all_uses_with(chosen)
    for each in dict.fromkeys((mask, node, cast)):
        if not each.users:
            each.graph.erase_node(each)


def _spell_out_fill(node: Node) -> None:
    """Fill in a number or 0 where the number is filled in wherever a value is not 0."""
    value, condition, number = node.args[:3]
    if is_call(condition, _ATEN.to.dtype) and condition.args[0] is value:
        node.target = _ATEN.where.Scalar
        node.args = (condition, number, 0.0)


def _compare_apart(node: Node, values: ConstantValues) -> None:
    """Write ``mask + integers == 0`` as ``mask == 0 and integers == 0``: no integer makes up for a very low number.

    So transformers 4.40 to 4.48 joins a causal mask and a mask of padding.
    """
    total, number = node.args[:2]
    if number != 0 or not is_call(total, _ATEN.add.Tensor) or total.kwargs:
        return
    for mask, integers in (total.args, total.args[::-1]):
        value = tensor_of(integers)
        if value is None or value.is_floating_point():
            continue
        write = Writer(node)
        is_kept = _is_zero(mask, write, values)
        if is_kept is not None:
            are_zero = write(_ATEN.eq.Scalar, integers, 0)
            replace_node(node, write(_ATEN.logical_and.default, is_kept, are_zero))
            return


def _is_zero(mask: object, write: Writer, values: ConstantValues) -> Node | None:
    """Write the condition that a mask is 0; None if it may be another number that is not very low."""
    constant = values.of(mask)
    if constant is not None:
        zeros = constant == 0
        if not bool((zeros | (constant <= _BEYOND_INTEGERS)).all()):
            return None
        return write.constant(zeros, "kept_by")
    if not isinstance(mask, Node):
        return None
    if op_name(mask) in _MOVES:
        source, *how = mask.args
        moved = _is_zero(source, write, values)
        target: Any = mask.target
        return moved if moved is None else write(target, moved, *how)
    if mask.target != _ATEN.mul.Tensor:
        return None
    for factor, condition in (mask.args, mask.args[::-1]):
        if not has_dtype(condition, torch.bool):
            continue
        is_kept = _is_zero(factor, write, values)
        if is_kept is not None:
            is_off = write(_ATEN.logical_not.default, condition)
            return write(_ATEN.logical_or.default, is_kept, is_off)
    return None


def _is_less_one(source: Node) -> bool:
    if source.target != _ATEN.sub.Tensor or source.kwargs:
        return False
    return bool(source.args[1] == 1)


def _readers(mask: Node, target: Any) -> list[tuple[Node, Node]]:
    """Return the operators that read a mask, each with the mask as moved there; nothing if one is of another kind."""
    moved = [mask]
    readers = []
    for each in moved:
        for reader in each.users:
            if op_name(reader) in _MOVES:
                moved.append(reader)
                continue
            if reader.target != target or reader.kwargs:
                return []
            readers.append((reader, each))
    return readers


def _scale_before_fill(node: Node, values: ConstantValues) -> None:
    """Move a positive factor before a fill with a low number: scale the filled value and the low number."""
    filled, factor = node.args[:2]
    if not isinstance(filled, Node) or filled.target not in _OPERANDS:
        return
    if len(filled.users) != 1 or node.kwargs:
        return
    if not isinstance(factor, (int, float)) or factor <= 0:
        return
    places = _OPERANDS[filled.target]
    if not any(values.are_at_most(filled.args[at], MASKED) for at in places):
        return
    write = Writer(node)
    scale: Any = node.target
    fill: Any = filled.target
    operands: list[Any] = list(filled.args)
    for at in places:
        operand = operands[at]
        if isinstance(operand, Node):
            operands[at] = write(scale, operand, factor)
        else:
            operands[at] = float(scale(torch.tensor(float(operand)), factor))
    replace_node(node, write(fill, *operands))
    node.graph.erase_node(filled)


_SCALES = (_ATEN.mul.Tensor, _ATEN.div.Tensor)
#: Operators that fill in numbers, and which of their arguments are values.
_OPERANDS: dict[Any, tuple[int, int]] = {
    _ATEN.masked_fill.Scalar: (0, 2),
    _ATEN.where.self: (1, 2),
    _ATEN.where.ScalarOther: (1, 2),
    _ATEN.where.ScalarSelf: (1, 2),
}
_FILLS = (_ATEN.masked_fill_.Scalar, _ATEN.masked_fill_.Tensor)
_RULES: dict[Any, Callable[[Node], None]] = {
    _ATEN.log.default: _spell_out_logarithm,
    _ATEN.masked_fill.Scalar: _spell_out_fill,
    _ATEN.mul.Tensor: _spell_out_product,
}
