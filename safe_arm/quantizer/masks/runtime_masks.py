"""Keep masks that are inputs, or computed from inputs, out of the domain of the scores as well."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules, op_name
from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    add_operator,
    calls,
    either_way,
    has_dtype,
    moved_from,
    stored_tensor,
    tensor_of,
)
from safe_arm.quantizer.graphs.mask_bounds import LOWEST, MASKED, beyond, bound_of
from safe_arm.quantizer.masks.softmaxes import (
    Softmax,
    distances,
    normalised,
    softmaxes,
    total,
)

_ATEN = torch.ops.aten
FILLS = (_ATEN.masked_fill.Scalar, _ATEN.masked_fill.Tensor)
WHERES = (
    _ATEN.where.self,
    _ATEN.where.ScalarOther,
    _ATEN.where.ScalarSelf,
    _ATEN.where.Scalar,
)
#: A factor of masks that are subtracted; smaller ones are those of pictures, too.
_SUBTRACTED = 1e3
PRODUCTS = (_ATEN.mul.Tensor, _ATEN.mul.Scalar)
#: Operators of masks that give a mask.
_JOINS = (_ATEN.add.Tensor, *WHERES, *FILLS)
SCALES = (*PRODUCTS, _ATEN.div.Tensor)


def mask_at_run_time(model: GraphModule) -> None:
    """Write a softmax whose mask depends on an input so that the mask does not widen the domain of the scores.

    A masked score is the least code of the domain of the scores, so that their maximum is that of those that are
    kept, and its exponential is multiplied by 0. In a row that is masked as a whole all are least, kept, and as likely
    as each other; attention gives 0 for it.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        values = ConstantValues(module)
        sums: dict[Node, MaskedScores] = {}
        written = False
        for softmax in list(softmaxes(module)):
            mask = _mask(values, softmax)
            if mask is None:
                continue
            written = True
            if mask.fills:
                replace_masked(softmax, mask)
                continue
            if mask.node not in sums:
                sums[mask.node] = _sums(mask.node)
            scores = _added_scores(softmax.node, mask.scores, sums[mask.node])
            softmax.replace(_written(softmax, scores))
        if written:
            module.graph.eliminate_dead_code()
        module.recompile()


def replace_masked(softmax: Softmax, mask: Mask, shown: Tensor | None = None) -> None:
    """Put a softmax of scores that are masked by a condition in the place of another.

    Args:
        softmax: the other; its graph is changed in place.
        mask: the scores and the condition.
        shown: which scores of a row that is hidden as a whole share its probability; None for all.
    """
    scores = chosen_scores(softmax.node, softmax.value, mask)
    softmax.replace(_written(softmax, scores, shown))


def inputs_of_masks(model: GraphModule) -> set[Node]:
    """Return the inputs that a mask multiplies by a low or a very high number, which shows that they are 0 or 1."""
    values = ConstantValues(model)
    found = set()
    for node in calls(model, *PRODUCTS):
        source, factor = node.args[:2]
        subtracted = isinstance(factor, float) and factor >= _SUBTRACTED
        if not subtracted and not values.are_at_most(factor, MASKED):
            continue
        while isinstance(source, Node) and len(source.all_input_nodes) == 1:
            source = source.all_input_nodes[0]
        if isinstance(source, Node) and source.op == "placeholder":
            found.add(source)
    return found


@dataclass(frozen=True)
class Mask:
    """A mask that depends on an input.

    Attributes:
        scores: what is masked.
        node: the mask.
        fills: it is a condition under which a score is kept or, with ``inverted``, masked; else it is added.
        number: what a masked score is replaced by, or what is added to it, where that is known.
    """

    scores: Node
    node: Node
    fills: bool = False
    inverted: bool = False
    number: float = -math.inf


def _mask(values: ConstantValues, softmax: Softmax) -> Mask | None:
    """Return the mask of a softmax; None if there is none, or if it is constant."""
    node = softmax.source
    mask = None
    if node.target in (*WHERES, *FILLS):
        mask = condition_of(values, node)
    elif node.target == _ATEN.add.Tensor:
        mask = added_mask(values, node)
    if mask is None or values.of(mask.node) is not None:
        return None
    return mask


def condition_of(values: ConstantValues, node: Node) -> Mask | None:
    """Return the mask of an operator that puts a low number in the place of what is masked."""
    if op_name(node).startswith("aten::masked_fill"):
        kept, condition, number = node.args[:3]
        inverted = True
    else:
        condition, kept, number = node.args[:3]
        inverted = False
        if values.are_at_most(kept, MASKED):
            kept, number, inverted = number, kept, True
    highest = values.highest(number)
    if highest is None or not highest <= MASKED:
        return None
    if not isinstance(kept, Node) or not has_dtype(condition, torch.bool):
        return None
    return Mask(kept, condition, True, inverted, highest)


def added_mask(values: ConstantValues, node: Node) -> Mask | None:
    """Return the mask that is added."""
    for scores, mask in either_way(node):
        if is_additive(values, mask, scores):
            return Mask(scores, mask)
    return None


def is_additive(values: ConstantValues, mask: Node, scores: Node) -> bool:
    """Return whether a value is a multiple of a low number, two numbers of which one masks,
    the logarithm of a mask, a part of a constant mask, or an input: a smaller one, or that of one head. An input
    as large as the scores of several heads is a bias, which would lose 6 dB as a mask."""
    value = tensor_of(mask)
    other = tensor_of(scores)
    if value is None or other is None:
        return False
    if not value.is_floating_point():
        return False
    source = moved_from(mask)
    if source.op == "placeholder":
        is_of_one_head = value.shape[:-2].numel() == 1
        if is_of_one_head and _is_product(scores):
            return True
        return bool(value.numel() < other.numel())
    constant = values.of(source)
    if constant is not None:
        return _is_mask(constant)
    if source.target in PRODUCTS:
        factors = source.args[:2]
        if any(values.are_at_most(factor, MASKED) for factor in factors):
            return True
        constants = [values.of(factor) for factor in factors]
        return any(each is not None and _is_mask(each) for each in constants)
    if source.target == _ATEN.log.default:
        return _is_of_next_to_nothing(values, source.args[0])
    if source.target == _ATEN.add.Tensor and not source.kwargs:
        return all(_adds(values, term, scores) for term in source.args)
    if source.target not in (*WHERES, *FILLS):
        return False
    numbers = source.args[1:]
    if source.target in FILLS:
        numbers = source.args[::2]
    for number in numbers:
        if not values.are_at_most(number, torch.inf) and not _adds(
            values, number, scores
        ):
            return False
    return any(values.are_at_most(number, MASKED) for number in numbers)


def _adds(values: ConstantValues, term: object, scores: Node) -> bool:
    return isinstance(term, Node) and is_additive(values, term, scores)


def _is_product(scores: Node) -> bool:
    """Return whether scores are a product of matrices, such as those of attention, maybe scaled."""
    node = moved_from(scores)
    while node.target in SCALES and isinstance(node.args[0], Node):
        node = moved_from(node.args[0])
    return op_name(node) in ("aten::matmul", "aten::bmm")


def _is_mask(constant: Tensor) -> bool:
    """Return whether a constant adds 0 to the scores that it does not mask, as the rows of a causal mask do."""
    masked = constant <= MASKED
    return bool(masked.any()) and bool((masked | (constant == 0)).all())


def _is_of_next_to_nothing(values: ConstantValues, node: object) -> bool:
    """Return whether a number whose logarithm masks was added to a value, as in ``mask + 1e-45``."""
    if not isinstance(node, Node) or node.target != _ATEN.add.Tensor:
        return False
    return values.are_at_most(node.args[1], math.exp(MASKED))


def _written(
    softmax: Softmax, scores: MaskedScores, shown: Tensor | None = None
) -> Node:
    """Write the softmax of masked scores, and return it."""
    dim = softmax.dim
    keep = scores.keep
    with softmax.node.graph.inserting_before(softmax.node):
        distance = distances(scores.masked, dim)
        e = add_operator(_ATEN.exp.default, distance)
        if not softmax.is_safe:
            from_last = dim - softmax.value.dim()
            keep = with_empty_rows(keep, from_last)
        if shown is not None:
            ones = shown.to(softmax.value.dtype)
            constant = Writer(softmax.node).constant(ones, "shown_of")
            keep = add_operator(_ATEN.mul.Tensor, keep, constant)
        e = add_operator(_ATEN.mul.Tensor, e, keep)
        divisor = total(e, dim)
        # Where a score is kept, their maximum is, whose exponential is 1.
        divisor = add_operator(_ATEN.clamp.default, divisor, 1.0)
        return normalised(e, divisor)


def with_empty_rows(keep: Node, dim: int) -> Node:
    """Write which scores are kept, or all of a row of which none is; ``dim`` counts from the last one."""
    if keep.meta["val"].dim() < -dim:
        return keep
    some = add_operator(_ATEN.amax.default, keep, [dim], True)
    none = add_operator(_ATEN.rsub.Scalar, some, 1.0)
    return add_operator(_ATEN.maximum.default, keep, none)


@dataclass(frozen=True)
class MaskedScores:
    """Masked scores, or what is added to scores to mask them, and what says which are kept.

    Attributes:
        masked: the scores, of which those that are masked are below all others; or a mask without minus infinity.
        keep: 1 where a score is kept, and 0.
    """

    masked: Node
    keep: Node


def chosen_scores(
    node: Node, like: Tensor, mask: Mask, low: float = -math.inf
) -> MaskedScores:
    """Write scores that are masked by a condition.

    Args:
        node: what they are written before; its graph is changed in place.
        like: the fake tensor of the scores.
        mask: the scores and the condition.
        low: what a masked score is; a number below all others if that is minus infinity.
    """
    constant = Writer(node).constant
    shape = [1] * like.dim()
    none = torch.zeros(shape, dtype=torch.bool)
    with node.graph.inserting_before(node):
        keep = mask.node
        if mask.inverted:
            keep = add_operator(_ATEN.logical_not.default, keep)
        limit = bound_of(none, like.dtype, low)
        filled = constant(limit, "low_of")
        masked = add_operator(_ATEN.where.self, keep, mask.scores, filled)
        ones = torch.ones(shape, dtype=like.dtype)
        one = constant(ones, "one_of")
        zeros = torch.zeros(shape, dtype=like.dtype)
        zero = constant(zeros, "zero_of")
        kept = add_operator(_ATEN.where.self, keep, one, zero)
    return MaskedScores(masked, kept)


def _sums(mask: Node) -> MaskedScores:
    """Write an additive mask in two parts, after it and once for all its readers."""
    limited = _limited(mask)
    if moved_from(limited).op == "get_attr":
        # The limit of the constant itself is computed ahead, and no longer known as that of a mask.
        limited = _clamped(limited)
    with mask.graph.inserting_after(limited):
        raised = add_operator(_ATEN.add.Tensor, limited, -MASKED / 2)
    with mask.graph.inserting_after(raised):
        keep = add_operator(_ATEN.clamp.default, raised, 0.0, 1.0)
    return MaskedScores(limited, keep)


def _added_scores(node: Node, scores: Node, added: MaskedScores) -> MaskedScores:
    """Write the sum of scores and an additive mask in two parts before a node."""
    with node.graph.inserting_before(node):
        masked = add_operator(_ATEN.add.Tensor, scores, added.masked)
    return replace(added, masked=masked)


def summed_scores(node: Node, mask: Mask) -> MaskedScores:
    """Write scores that a mask is added to.

    Args:
        node: what they are written before; its graph is changed in place.
        mask: the scores and the additive mask.
    """
    return _added_scores(node, mask.scores, _sums(mask.node))


def _limited(mask: Node) -> Node:
    """Write an additive mask that is finite where it comes from; how it was moved from there is repeated."""
    write = Writer(mask)
    constant = stored_tensor(mask)
    if constant is not None:
        return write.constant(constant.clamp(min=LOWEST), "near")
    if mask.target in _JOINS:
        parts: list[Any] = list(mask.args)
        for position, part in enumerate(parts):
            value = tensor_of(part)
            if value is not None and value.is_floating_point() and value.dim():
                parts[position] = _limited(part)
        with mask.graph.inserting_after(mask):
            joined = add_operator(mask.target, *parts)  # type: ignore[arg-type]
        return _clamped(joined)
    before = mask.args[0] if mask.args else None
    if moved_from(mask) is mask or not isinstance(before, Node):
        with mask.graph.inserting_after(_last_input(mask)):
            source = _with_near_factor(mask)
        return _clamped(source)
    limited = _limited(before)
    with mask.graph.inserting_after(mask):
        return add_operator(mask.target, limited, *mask.args[1:], **mask.kwargs)  # type: ignore[arg-type]


def _clamped(mask: Node) -> Node:
    with mask.graph.inserting_after(_last_input(mask)):
        limit = -beyond(mask.meta["val"].dtype)
        return add_operator(_ATEN.clamp.default, mask, limit)


def _with_near_factor(mask: Node) -> Node:
    """Write a mask that is a multiple of numbers beyond what can be rescaled as one of nearer numbers."""
    if mask.target not in PRODUCTS:
        return mask
    write = Writer(mask)
    factors: list[Any] = []
    for factor in mask.args:
        constant = stored_tensor(factor)
        if constant is not None:
            factor = write.constant(constant.clamp(min=LOWEST), "near")
        elif isinstance(factor, float):
            factor = max(factor, LOWEST)
        factors.append(factor)
    if factors == list(mask.args):
        return mask
    return add_operator(mask.target, *factors)


def _last_input(node: Node) -> Node:
    """Return the last input of a graph for an input, any other node as it is."""
    while node.op == "placeholder" and node.next.op == "placeholder":
        node = node.next
    return node
