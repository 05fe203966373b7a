"""Add a bias that contains a mask to the scores in two steps, so that the mask is recognised as one."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    depends_on_input,
    either_way,
    is_call,
    is_read_once,
    replace_node,
)
from safe_arm.quantizer.graphs.mask_bounds import MASKED
from safe_arm.quantizer.masks.runtime_masks import (
    FILLS,
    WHERES,
    condition_of,
    is_additive,
)
from safe_arm.quantizer.masks.softmaxes import softmaxes

_ATEN = torch.ops.aten
_ADD = _ATEN.add.Tensor


def add_biases_first(module: GraphModule) -> None:
    """Write ``scores + (bias + mask)`` as ``(scores + bias) + mask``, and one that is filled into a bias likewise.

    T5 adds its masks to the trained bias of positions, which is not a constant, and all layers add the sum to their
    scores. In the range of the mask's number, the bias and the scores have only one code.

    Args:
        module: a float graph before annotation, without the branches of its control flow; changed in place.
    """
    values = ConstantValues(module)
    for softmax in list(softmaxes(module)):
        sums = [softmax.source]
        while sums:
            sums += _bias_first(sums.pop(), values)
    module.recompile()


def _bias_first(total: Node, values: ConstantValues) -> list[Node]:
    """Add one bias before its mask, and return the sums to look at next; none if no bias contains a mask."""
    if total.target is not _ADD:
        return []
    for scores, biased in either_way(total):
        if values.of(scores) is not None or values.of(biased) is not None:
            continue
        if is_call(biased, _ADD) and not biased.kwargs:
            changed = _before_added(total, scores, biased, values)
        else:
            changed = _before_filled(total, scores, biased, values)
        if changed:
            return changed
    return []


def _before_added(
    total: Node, scores: Node, biased: Node, values: ConstantValues
) -> list[Node]:
    added_to_mask = is_additive(values, scores, total)
    for bias, mask in (biased.args, biased.args[::-1]):
        if added_to_mask and values.of(mask) is None:
            continue  # Each of two masks would be added before the other without end.
        if isinstance(bias, Node) and _masks(mask, total, values):
            shifted = _with_bias(Writer(total), scores, bias)
            total.args = (shifted, mask)
            return [shifted, total]
    return []


def _with_bias(write: Writer, scores: Node, bias: Node) -> Node:
    """Add a bias to scores, and to another one first if neither depends on an input: the scores are rounded once."""
    other = _bias_in(scores)
    if other is None or depends_on_input(bias):
        return write(_ADD, scores, bias)
    biases = write(_ADD, other, bias)
    (unbiased,) = (term for term in scores.args if term is not other)
    shifted = write(_ADD, unbiased, biases)
    replace_node(scores, shifted)
    return shifted


def _bias_in(scores: Node) -> Node | None:
    """Return what depends on no input and is added to scores that nothing else reads; None for any other value."""
    if not is_call(scores, _ADD):
        return None
    if not is_read_once(scores):
        return None
    for other, unbiased in either_way(scores):
        if depends_on_input(other) or not depends_on_input(unbiased):
            continue
        return other
    return None


def _before_filled(
    total: Node, scores: Node, biased: Node, values: ConstantValues
) -> list[Node]:
    if biased.target not in (*WHERES, *FILLS):
        return []
    found = condition_of(values, biased)
    if found is None or values.of(found.scores) is not None:
        return []
    write = Writer(total)
    shifted = write(_ADD, scores, found.scores)
    operands = [shifted if each is found.scores else each for each in biased.args]
    assert callable(biased.target)
    replace_node(total, write(biased.target, *operands))
    return [shifted]


def _masks(mask: object, total: Node, values: ConstantValues) -> bool:
    """Tell whether a value that is added masks some of a sum."""
    if not isinstance(mask, Node):
        return False
    constant = values.of(mask)
    if constant is not None:
        return bool((constant <= MASKED).any())
    if is_call(mask, _ADD) and not mask.kwargs:
        return any(_masks(term, total, values) for term in mask.args)
    return is_additive(values, mask, total)
