"""Keep a mask out of the domain of the scores, and give a masked score a probability of 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from executorch.backends.transforms.decompose_sdpa import (
    DecomposeScaledDotProductAttention,
)
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.island import arguments_by_name, graph_modules
from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import Writer, add_operator, calls
from safe_arm.quantizer.graphs.mask_bounds import MASKED, bound_of
from safe_arm.quantizer.masks.added_masks import add_masks_first
from safe_arm.quantizer.masks.biased_masks import add_biases_first
from safe_arm.quantizer.masks.combined_masks import combine_masks
from safe_arm.quantizer.masks.runtime_masks import condition_of
from safe_arm.quantizer.masks.softmaxes import (
    Softmax,
    distances,
    normalised,
    softmaxes,
    total,
)

_ATEN = torch.ops.aten
_ATTENTION = _ATEN.scaled_dot_product_attention.default
#: A number whose sum with a score of up to 32 is itself in float32.
_SAME = -1e9


def mask_probabilities(model: GraphModule) -> None:
    """Write a softmax of masked scores so that the mask is neither quantised nor added.

    ``softmax(scores + mask)`` becomes ``e / sum(e)`` with ``e = exp(a - amax(a)) * keep`` and
    ``a = minimum(scores, bound)``; the bound is very large where a score is kept, and very small where it is masked.
    A row that is masked as a whole by a number so low that float32 forgets the scores is uniform. Another mask that
    masks a whole row is left as it is, but for attention, which gives 0 for such a row.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        _decompose_masked_attention(module)
        add_biases_first(module)
        combine_masks(module)
        add_masks_first(module)
        values = ConstantValues(module)
        for softmax in list(softmaxes(module)):
            scores = _masked_scores(values, softmax)
            if scores is not None:
                softmax.replace(_written(softmax, scores))
                module.graph.eliminate_dead_code()
        module.recompile()


def _decompose_masked_attention(module: GraphModule) -> None:
    """Decompose attention with a mask as stock does."""
    masked = False
    for node in calls(module, _ATTENTION):
        arguments = arguments_by_name(node)
        masked |= arguments.get("attn_mask") is not None
        masked |= bool(arguments.get("is_causal"))
    if masked:
        DecomposeScaledDotProductAttention().call(module)


@dataclass(frozen=True)
class _Scores:
    """Scores, and what a constant mask does with them before a softmax.

    Attributes:
        node: the scores before the mask.
        bias: what is added to those that are kept, broadcast to the shape of the scores.
        keep: False where a score is masked.
    """

    node: Node
    bias: Tensor
    keep: Tensor


def _masked_scores(values: ConstantValues, softmax: Softmax) -> _Scores | None:
    """Return the scores below the masks of a softmax; None if none is a constant mask."""
    source = softmax.source
    bias = torch.zeros(())
    keep = torch.tensor(True)
    scores = _Scores(source, bias, keep)
    while True:
        below = _below(values, scores)
        if below is None:
            break
        scores = below
    return _told_apart(scores, softmax)


def _below(values: ConstantValues, scores: _Scores) -> _Scores | None:
    """Return the scores before the last mask; None if the last operator is none."""
    node = scores.node
    if node.op != "call_function" or not node.args:
        return None
    rule = _RULES.get(node.target)
    return None if rule is None else rule(values, scores, node)


def _added(values: ConstantValues, scores: _Scores, node: Node) -> _Scores | None:
    left, right = node.args[:2]
    if node.kwargs:
        return None
    for source, other in ((left, right), (right, left)):
        mask = values.of(other)
        if mask is None or not isinstance(source, Node):
            continue
        bias = scores.bias + mask
        return replace(scores, node=source, bias=bias)
    return None


def _subtracted(values: ConstantValues, scores: _Scores, node: Node) -> _Scores | None:
    source, other = node.args[:2]
    mask = values.of(other)
    if node.kwargs or mask is None:
        return None
    if not isinstance(source, Node):
        return None
    return replace(scores, node=source, bias=scores.bias - mask)


def _filled(values: ConstantValues, scores: _Scores, node: Node) -> _Scores | None:
    found = condition_of(values, node)
    mask = None if found is None else values.of(found.node)
    if found is None or mask is None:
        return None
    keep = ~mask if found.inverted else mask
    return replace(scores, node=found.scores, keep=scores.keep & keep)


_RULES: dict[Any, Callable[[ConstantValues, _Scores, Node], _Scores | None]] = {
    _ATEN.add.Tensor: _added,
    _ATEN.add_.Tensor: _added,
    _ATEN.sub.Tensor: _subtracted,
    _ATEN.where.self: _filled,
    _ATEN.where.ScalarOther: _filled,
    _ATEN.where.ScalarSelf: _filled,
    _ATEN.masked_fill.Scalar: _filled,
    _ATEN.masked_fill.Tensor: _filled,
    _ATEN.masked_fill_.Scalar: _filled,
}


def _told_apart(scores: _Scores, softmax: Softmax) -> _Scores | None:
    """Return scores whose bias is that of the kept ones; None if no score is masked, or rows that have to stay.

    Args:
        scores: the scores and the sum of their masks.
        softmax: reads the masked scores; if it is a safe one, a row may be masked as a whole.
    """
    value = softmax.value
    dim = softmax.dim
    safe = softmax.is_safe
    bias = scores.bias.to(value.dtype)
    keep = scores.keep
    mask = torch.where(keep, bias, -torch.inf)
    while mask.dim() < value.dim():
        mask = mask.unsqueeze(0)
    if mask.isnan().any():
        return None
    highest = mask.amax(dim, keepdim=True)
    if mask.shape[dim] == 1:
        return None
    hidden = highest <= MASKED
    same = hidden & (highest <= _SAME) & highest.isfinite()
    if safe:
        # A row of minus infinity has probabilities of 0.
        hidden &= highest.isfinite()
    else:
        hidden &= ~same
    if bool(hidden.any()):
        return None
    if safe:
        highest = highest.clamp(min=0.0)
    keep = (mask > highest + MASKED) & ~same
    if bool(keep.all()):
        return None
    bias = mask.where(keep, 0.0)
    return _Scores(scores.node, bias, keep)


def _written(softmax: Softmax, scores: _Scores) -> Node:
    """Write the softmax of scores with a mask of the same rank, and return it."""
    constant = Writer(softmax.node).constant
    like = softmax.value
    dim = softmax.dim
    rows = scores.keep.any(dim, keepdim=True)
    keep = scores.keep | ~rows
    limited = keep if softmax.is_safe else scores.keep
    with softmax.node.graph.inserting_before(softmax.node):
        x = scores.node
        if bool(scores.bias.any()):
            bias = constant(scores.bias, "bias_of")
            x = add_operator(_ATEN.add.Tensor, x, bias)
        limit = bound_of(limited, like.dtype)
        bound = constant(limit, "bound_of")
        x = add_operator(_ATEN.minimum.default, x, bound)
        distance = distances(x, dim)
        e = add_operator(_ATEN.exp.default, distance)
        ones = keep.to(like.dtype)
        kept = constant(ones, "keep_of")
        e = add_operator(_ATEN.mul.Tensor, e, kept)
        divisor = total(e, dim)
        result = normalised(e, divisor)
        if softmax.is_safe and not bool(rows.all()):
            ones = rows.to(like.dtype)
            some = constant(ones, "rows_of")
            result = add_operator(_ATEN.mul.Tensor, result, some)
    return result
