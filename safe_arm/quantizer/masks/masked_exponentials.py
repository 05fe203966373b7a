"""Mask the exponential of masked scores instead of the scores, where no softmax divides it by its sum.

``exp(x.masked_fill(m, -inf))`` is 0 where a score is masked: the decays of Mamba 2 and mLSTM are written so, and a
``logsumexp`` of all scores but those of a row with itself. The low number widens the domain of the scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import stored_value
from safe_arm.core.island import graph_modules
from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    calls,
    is_stored,
    operands_of,
    replace_node,
)
from safe_arm.quantizer.graphs.mask_bounds import (
    HIDDEN,
    MASKED,
    bound_of,
    is_low_number,
)
from safe_arm.quantizer.masks.runtime_masks import (
    FILLS,
    WHERES,
    Mask,
    MaskedScores,
    added_mask,
    chosen_scores,
    condition_of,
    summed_scores,
    with_empty_rows,
)

_ATEN = torch.ops.aten
_ADD = _ATEN.add.Tensor
_SUB = _ATEN.sub.Tensor
_EXP = _ATEN.exp.default
#: Operators that take the greatest of the scores along dimensions.
_GREATEST = (_ATEN.amax.default, _ATEN.max.dim)
#: A number that is as good as its sum with a score, to the bound of the float proof.
_FAR = -1e6


def mask_exponentials(model: GraphModule) -> None:
    """Write an exponential of masked scores, or of their distance to a number, as 0 where a score is masked.

    The exponential reads scores of which those that are masked have the least code of the others, and so does the
    maximum that is subtracted. Scores that anything else reads are left alone, and so is a constant mask that leaves
    a maximum nothing to take. A row that a mask of run time hides as a whole keeps what it was.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        values = ConstantValues(module)
        for node in list(calls(module, *FILLS, *WHERES, _ADD)):
            readers = _readers(node)
            if readers is not None and _is_written(values, node, readers):
                module.graph.eliminate_dead_code()
        module.recompile()


def _is_written(values: ConstantValues, node: Node, readers: _Readers) -> bool:
    """Write masked scores and their exponentials, if the mask allows it, and return whether it does."""
    constant = _constant_mask(values, node)
    if constant is not None:
        if not _leaves_some(constant.keep, node, readers.maxima):
            return False
        if _is_sum_of_logarithms(node, constant, readers):
            return False
        _write_by_constants(node, constant, readers)
        return True
    find, write = condition_of, _chosen
    if node.target == _ADD:
        find, write = added_mask, summed_scores
    mask = find(values, node)
    if mask is None or _is_done(node) or _rows(node, readers) is None:
        return False
    _write_at_run_time(node, write(node, mask), readers)
    return True


def _chosen(node: Node, mask: Mask) -> MaskedScores:
    return chosen_scores(node, node.meta["val"], mask, mask.number)


def _is_done(node: Node) -> bool:
    """Return whether scores are filled as this step fills them."""
    filled = node.args[-1]
    return is_stored(filled) and is_low_number(stored_value(filled))


@dataclass(frozen=True)
class _Readers:
    """All that reads masked scores.

    Attributes:
        exponentials: those of the scores, or of a difference of the scores and something else.
        maxima: what takes the greatest of them.
        logarithms: the logarithms of their softmax.
    """

    exponentials: list[Node]
    maxima: list[Node]
    logarithms: list[Node]


def _readers(node: Node) -> _Readers | None:
    """Return what reads masked scores; None if there are no exponentials, or something else."""
    readers = _Readers([], [], [])
    for reader in node.users:
        if reader.target in _GREATEST:
            readers.maxima.append(reader)
        elif reader.target == _EXP:
            readers.exponentials.append(reader)
        elif reader.target == _SUB and reader.args[0] is node and not reader.kwargs:
            for each in reader.users:
                if each.target == _EXP:
                    readers.exponentials.append(each)
                elif _is_logarithm(each, reader):
                    readers.logarithms.append(each)
                else:
                    return None
        else:
            return None
    return readers if readers.exponentials else None


def _is_logarithm(node: Node, distance: Node) -> bool:
    """Return whether a node is the logarithm of a softmax, a distance less the logarithm of a sum."""
    if node.target != _SUB or node.args[0] is not distance or node.kwargs:
        return False
    summed, _ = operands_of(node.args[1], _ATEN.log.default)
    exponential, _ = operands_of(summed, _ATEN.sum.dim_IntList)
    read, _ = operands_of(exponential, _EXP)
    return read is distance


@dataclass(frozen=True)
class _ConstantMask:
    """A mask that depends on no input.

    Attributes:
        scores: what is masked.
        keep: which of them it keeps.
        low: what the others are replaced by, or what is added to them.
    """

    scores: Node
    keep: Tensor
    low: Tensor | float


def _constant_mask(values: ConstantValues, node: Node) -> _ConstantMask | None:
    """Return the constant mask of scores; None if there is none."""
    if node.target == _ADD:
        return _added(values, node)
    mask = condition_of(values, node)
    condition = None if mask is None else values.of(mask.node)
    if mask is None or condition is None:
        return None
    keep = ~condition if mask.inverted else condition
    return _ConstantMask(mask.scores, keep, mask.number)


def _added(values: ConstantValues, node: Node) -> _ConstantMask | None:
    """Return the same of a mask that is added, unless it adds anything but low numbers."""
    for scores, other in (node.args[:2], node.args[1::-1]):
        added = values.of(other)
        if added is None or not isinstance(scores, Node) or node.kwargs:
            continue
        keep = added == 0
        if bool((keep | (added <= MASKED)).all()) and not bool(keep.all()):
            return _ConstantMask(scores, keep, added)
    return None


def _is_sum_of_logarithms(node: Node, mask: _ConstantMask, readers: _Readers) -> bool:
    """Return whether a logarithm shows what a number that is not far was added to."""
    if node.target != _ADD or not readers.logarithms:
        return False
    low = torch.as_tensor(mask.low)
    return bool((low[~mask.keep] > _FAR).any())


def _leaves_some(keep: Tensor, node: Node, maxima: list[Node]) -> bool:
    """Return whether a constant mask keeps a score of each row that a maximum is taken of."""
    keep = keep.expand(node.meta["val"].shape)
    return all(bool(keep.any(_dims(each)).all()) for each in maxima)


def _write_by_constants(node: Node, mask: _ConstantMask, readers: _Readers) -> None:
    """Write scores that are limited by a constant, and exponentials times 1 or 0."""
    value = node.meta["val"]
    sizes = [1] * (value.dim() - mask.keep.dim()) + list(mask.keep.shape)
    keep = mask.keep.reshape(sizes)
    write = Writer(node)
    limit = bound_of(keep, value.dtype, mask.low)
    bound = write.constant(limit, "bound_of")
    ones = write.constant(keep.to(value.dtype), "keep_of")
    replace_node(node, write(_ATEN.minimum.default, mask.scores, bound))
    for each in readers.exponentials:
        _multiply(each, ones)
    if readers.logarithms:
        limit = bound_of(keep, value.dtype, HIDDEN)
        bound = write.constant(limit, "bound_of_logarithms")
    for each in readers.logarithms:
        _limit(each, bound)


def _rows(node: Node, readers: _Readers) -> set[int] | None:
    """Return the dimension along which the maxima are that are subtracted; None if there are several."""
    dims: set[int] = set()
    for each in readers.exponentials:
        highest = _highest(node, each)
        if highest is not None:
            dims.update(_dims(highest))
    return dims if len(dims) <= 1 else None


def _highest(node: Node, exponential: Node) -> Node | None:
    """Return the maximum of scores that an exponential of their distance to it reads; None if it reads no such."""
    distance = exponential.args[0]
    if not isinstance(distance, Node) or distance.target != _SUB:
        return None
    highest = distance.args[1]
    if isinstance(highest, Node) and highest.target is getitem:
        highest = highest.args[0]
    if not isinstance(highest, Node) or highest.target not in _GREATEST:
        return None
    return highest if highest.args[0] is node else None


def _write_at_run_time(node: Node, scores: MaskedScores, readers: _Readers) -> None:
    """Let all read scores that a mask of run time limits, and multiply exponentials by 1 or 0."""
    some = scores.keep
    with node.graph.inserting_before(node):
        for dim in _rows(node, readers) or ():
            some = with_empty_rows(some, dim)
    for each in readers.exponentials:
        highest = _highest(node, each)
        _multiply(each, scores.keep if highest is None else some)
    if readers.logarithms:
        write = Writer(node)
        hidden = write(_ATEN.rsub.Scalar, some, 1.0)
        bound = write(_ATEN.mul.Tensor, hidden, HIDDEN)
    for each in readers.logarithms:
        _limit(each, bound)
    replace_node(node, scores.masked)


def _dims(highest: Node) -> list[int]:
    """Return the dimensions of a maximum, counted from the last."""
    (source,) = highest.all_input_nodes
    rank = source.meta["val"].dim()
    dims: Any = (*highest.args[1:2], [])[0]
    if isinstance(dims, int):
        dims = [dims]
    return [dim % rank - rank for dim in dims or range(rank)]


def _multiply(exponential: Node, keep: Node) -> None:
    """Let all that reads an exponential read its product with 1 or 0."""
    write = Writer(exponential.next, marks=exponential)
    product = write(_ATEN.mul.Tensor, exponential, keep)
    exponential.replace_all_uses_with(product, lambda reader: reader is not product)


def _limit(logarithm: Node, bound: Node) -> None:
    """Let all that reads the logarithm of a softmax read a low number where it is masked."""
    write = Writer(logarithm.next, marks=logarithm)
    limited = write(_ATEN.minimum.default, logarithm, bound)
    logarithm.replace_all_uses_with(limited, lambda reader: reader is not limited)
