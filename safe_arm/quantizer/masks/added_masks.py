"""Masks that are added or filled in one after the other are added up first, to one mask."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import Writer, either_way, replace_node
from safe_arm.quantizer.masks.runtime_masks import (
    FILLS,
    WHERES,
    Mask,
    condition_of,
    is_additive,
)
from safe_arm.quantizer.masks.softmaxes import softmaxes

_ATEN = torch.ops.aten
_ADD = _ATEN.add.Tensor
#: A sum with it and a score below 32 is the number itself.
_ABSORBING = -1e9
#: In the place of all lower numbers: a rescale reaches it.
_LEAST = -1e10


def add_masks_first(module: GraphModule) -> None:
    """Write ``(scores + mask) + padding`` as ``scores + (mask + padding)``, if one of the masks depends on an input.

    Otherwise the first mask would be part of the scores, and leave them only one code. A number that absorbs the scores
    that it is filled in for is filled into the masks.

    Args:
        module: a float graph before annotation, without the branches of its control flow; changed in place.
    """
    values = ConstantValues(module)
    for softmax in list(softmaxes(module)):
        masks: list[Node | Mask] = []
        scores = softmax.source
        while True:
            below = _below(scores, masks, values)
            if below is None:
                break
            scores = below
        if len(masks) > 1 and any(values.of(mask) is None for mask in masks):
            _add(softmax.source, scores, masks)
            module.graph.eliminate_dead_code()
    module.recompile()


def _below(node: Node, masks: list[Node | Mask], values: ConstantValues) -> Node | None:
    """Take the last mask off, and return the scores below it; None if there is none."""
    if node.target is _ADD:
        for scores, mask in either_way(node):
            if is_additive(values, mask, node):
                masks.append(mask)
                return scores
    if node.target not in (*WHERES, *FILLS):
        return None
    filled = condition_of(values, node)
    if filled is None or filled.number > _ABSORBING:
        return None
    if values.of(filled.node) is not None:
        return None
    masks.append(filled)
    return filled.scores


def _add(source: Node, scores: Node, masks: list[Node | Mask]) -> None:
    """Write the scores that a softmax reads as a sum with one mask, of several with the last one first."""
    write = Writer(source)
    total: Node | None = None
    for position, mask in enumerate(reversed(masks)):
        if isinstance(mask, Node):
            total = mask if total is None else write(_ADD, total, mask)
            continue
        low = torch.tensor(max(mask.number, _LEAST))
        number = write.constant(low, f"number_{position}")
        kept = total or write.constant(torch.tensor(0.0), "zero")
        choices = (number, kept) if mask.inverted else (kept, number)
        total = write(_ATEN.where.self, mask.node, *choices)
    replace_node(source, write(_ADD, scores, total))
