"""Combine a constant mask and one that depends on an input, of the same softmax, into one condition."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import Writer, either_way
from safe_arm.quantizer.graphs.mask_bounds import MASKED
from safe_arm.quantizer.masks.runtime_masks import (
    FILLS,
    PRODUCTS,
    WHERES,
    Mask,
    condition_of,
    replace_masked,
)
from safe_arm.quantizer.masks.softmaxes import Softmax, softmaxes

_ATEN = torch.ops.aten


#: A mask and, if it is constant, where it hides a score.
_Part: TypeAlias = tuple[Mask, Tensor | None]


def combine_masks(module: GraphModule) -> None:
    """Write a softmax with a causal and a padding mask, added or filled in one after the other, with a single mask.

    Otherwise the second mask would be part of the scores, and leave them only one code. The masks stay apart if it is
    not known which scores of a row that both hide are the highest. If the number of the mask at run time is higher,
    they are those that only this mask hides; if both fill in the same number, all scores are equal.

    Args:
        module: a float graph before annotation, without the branches of its control flow; changed in place.
    """
    values = ConstantValues(module)
    for softmax in list(softmaxes(module)):
        scores: Node = softmax.source
        parts: list[_Part] = []
        biases: list[Tensor] = []
        while True:
            below = _below(scores, parts, biases, values)
            if below is None:
                break
            scores = below
        at_run_time = [mask for mask, hidden in parts if hidden is None]
        if len(at_run_time) != 1 or len(parts) == 1 or softmax.is_safe:
            continue
        shown = _shown(parts, at_run_time[0])
        if shown is not None:
            _combine(softmax, scores, at_run_time[0], parts, biases, shown)
            module.graph.eliminate_dead_code()
    module.recompile()


def _below(
    node: Node, parts: list[_Part], biases: list[Tensor], values: ConstantValues
) -> Node | None:
    """Take the last mask off, and return the scores below it; None if there is none."""
    if node.target is _ATEN.add.Tensor:
        for scores, mask in either_way(node):
            found = _added(scores, mask, biases, values)
            if found:
                parts += found
                return scores
        return None
    filled = _filled(node, values)
    if filled is None:
        return None
    parts.append(filled)
    return filled[0].scores


def _added(
    scores: Node, mask: Node, biases: list[Tensor], values: ConstantValues
) -> list[_Part]:
    constant = values.of(mask)
    if constant is not None:
        hidden = constant <= MASKED
        if not bool(hidden.any()):
            return []
        bias = constant.masked_fill(hidden, 0.0)
        if bool(bias.any()):
            biases.append(bias)
        number = float(constant[hidden].max())
        return [(Mask(scores, mask, number=number), hidden)]
    if mask.target in PRODUCTS:
        factor, low = mask.args[:2]
        if isinstance(factor, Node) and isinstance(low, float) and low <= MASKED:
            return [(Mask(scores, factor, inverted=True, number=low), None)]
        return []
    filled = _filled(mask, values)
    if filled is None:
        return []
    kept = filled[0].scores
    constant = values.of(kept)
    if constant is not None and not bool(constant.any()):
        return [filled]
    below = _added(scores, kept, biases, values)
    return [filled, *below] if below else []


def _filled(node: Node, values: ConstantValues) -> _Part | None:
    if node.target not in (*WHERES, *FILLS):
        return None
    mask = condition_of(values, node)
    if mask is None:
        return None
    hidden = values.of(mask.node)
    if hidden is not None and not mask.inverted:
        hidden = ~hidden
    return mask, hidden


def _shown(parts: list[_Part], at_run_time: Mask) -> Tensor | None:
    """Return which scores share the probability of a row that is hidden as a whole; None if that is not known."""
    shown = torch.tensor(True)
    behind = False
    for mask, hidden in parts:
        if hidden is None:
            behind = True
            continue
        is_alike = mask.fills and mask.number == at_run_time.number
        if is_alike and (at_run_time.fills or not behind):
            continue
        if mask.number >= at_run_time.number or (behind and at_run_time.fills):
            return None
        shown = shown & ~hidden
    return shown if bool(shown.any(-1).all()) else None


def _combine(
    softmax: Softmax,
    scores: Node,
    at_run_time: Mask,
    parts: list[_Part],
    biases: list[Tensor],
    shown: Tensor,
) -> None:
    write = Writer(softmax.node)
    name = f"of_{softmax.node.name}"
    for position, bias in enumerate(biases):
        constant = write.constant(bias, f"bias_{position}_{name}")
        scores = write(_ATEN.add.Tensor, scores, constant)
    hidden = torch.tensor(False)
    for _, by_constant in parts:
        if by_constant is not None:
            hidden = hidden | by_constant
    # The two conditions are joined as numbers, because the reference model takes no constant of booleans there.
    constant = write.constant(hidden.to(softmax.value.dtype), f"hidden_{name}")
    if not at_run_time.fills:
        both = write(_ATEN.maximum.default, at_run_time.node, constant)
    else:
        one = write.constant(torch.ones([1] * hidden.dim()), f"one_{name}")
        numbers = (one, constant) if at_run_time.inverted else (constant, one)
        both = write(_ATEN.where.self, at_run_time.node, *numbers)
    condition = write(_ATEN.gt.Scalar, both, 0.5)
    mask = Mask(scores, condition, fills=True, inverted=True)
    replace_masked(softmax, mask, None if bool(shown.all()) else shown)
