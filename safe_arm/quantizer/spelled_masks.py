"""Additive masks in the one spelling that is known as a mask: a low number where a score is hidden, added to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules, op_name
from safe_arm.core.operators import ElementOrigin, operators
from safe_arm.quantizer.graph_edits import Writer
from safe_arm.quantizer.mask_bounds import MASKED
from safe_arm.quantizer.operator_schemas import may_alias

_ATEN = torch.ops.aten
_MOVES = operators(ElementOrigin.VIEW, ElementOrigin.PART)


def spell_out_masks(model: GraphModule) -> None:
    """Write a mask that is subtracted, one of ``keep - 1``, and one that is filled in place as masks are known.

    ``x - (1 - keep) * 1e9`` becomes ``x + (1 - keep) * -1e9``, ``(keep - 1) * 1e9`` becomes ``(1 - keep) * -1e9``, and
    ``masked_fill_`` of a value that nothing else reads ``masked_fill``. In any other spelling the number widens the
    domain of the scores, which have one code for each several millions then.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        for node in list(module.graph.nodes):
            rule = _RULES.get(node.target)
            if rule is not None:
                rule(node)
        module.recompile()


def _spell_out_product(node: Node) -> None:
    """Write a product with a large number as one with a low number, if it is known to be negative or subtracted."""
    factor = node.args[1]
    if not isinstance(factor, (int, float)) or factor < -MASKED:
        return
    source = node.args[0]
    assert isinstance(source, Node)
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


def _is_less_one(source: Node) -> bool:
    if source.target != _ATEN.sub.Tensor or source.kwargs:
        return False
    return bool(source.args[1] == 1)


def _readers(mask: Node, target: Any) -> list[tuple[Node, Node]]:
    """Return the operators that read a mask, each with the mask as it is moved there; nothing if any is another."""
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


def _spell_out_fill(node: Node) -> None:
    """Fill a value that has no other name and no other reader out of place."""
    source = node.args[0]
    assert isinstance(source, Node)
    if source.op != "call_function" or may_alias(source):
        return
    if len(source.users) == 1:
        node.target = _FILLS[node.target]  # type: ignore[index]


_FILLS = {
    _ATEN.masked_fill_.Scalar: _ATEN.masked_fill.Scalar,
    _ATEN.masked_fill_.Tensor: _ATEN.masked_fill.Tensor,
}
_RULES: dict[Any, Callable[[Node], None]] = {
    _ATEN.mul.Tensor: _spell_out_product,
    _ATEN.masked_fill_.Scalar: _spell_out_fill,
    _ATEN.masked_fill_.Tensor: _spell_out_fill,
}
