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
    if source.target == _ATEN.sub.Tensor and source.args[1] == 1 and not source.kwargs:
        keep = source.args[0]
        hidden = Writer(node)(_ATEN.rsub.Scalar, keep, 1)
        node.args = (hidden, -factor)
        if not source.users:
            source.graph.erase_node(source)
        return
    differences = _differences(node)
    if differences:
        node.args = (source, -factor)
    for difference in differences:
        difference.target = _ATEN.add.Tensor


def _differences(mask: Node) -> list[Node]:
    """Return the operators that subtract a mask; nothing if anything else reads it."""
    moved = [mask]
    differences = []
    for each in moved:
        for reader in each.users:
            if op_name(reader) in _MOVES:
                moved.append(reader)
                continue
            if reader.target != _ATEN.sub.Tensor or reader.kwargs:
                return []
            scores, subtracted = reader.args
            if subtracted is not each or scores is each:
                return []
            if not isinstance(scores, Node):
                return []
            differences.append(reader)
    return differences


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
