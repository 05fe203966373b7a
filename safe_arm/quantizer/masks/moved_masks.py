"""Mask scores behind what moves, scales or limits them, where a softmax knows them as masked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import getitem
from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules, op_name
from safe_arm.core.operators import RESHAPES, named
from safe_arm.quantizer.graphs.constant_values import (
    ConstantValues,
    filler_of,
    number_of,
)
from safe_arm.quantizer.graphs.graph_edits import (
    MOVES,
    Writer,
    either_way,
    is_static,
    tensor_of,
)
from safe_arm.quantizer.graphs.mask_bounds import MASKED
from safe_arm.quantizer.masks.runtime_masks import (
    FILLS,
    WHERES,
    Mask,
    condition_of,
    is_additive,
)
from safe_arm.quantizer.masks.softmaxes import before_casts, softmaxes

_ATEN = torch.ops.aten
_ADD = _ATEN.add.Tensor
_CAT = _ATEN.cat.default
_SCALES = (_ATEN.mul.Tensor, _ATEN.div.Tensor)
#: Operators that are computed of the number of a mask as well.
_LIMITS = (_ATEN.clamp.default, *_SCALES)
_LOGARITHMS = (
    _ATEN.logsumexp.default,
    _ATEN.log_softmax.int,
    _ATEN._log_softmax.default,
)
_SOFTMAXES = (_ATEN.softmax.int, _ATEN._softmax.default)
#: Operators that give the dimensions of a tensor another order, those of size 1 alike.
_PERMUTES = named("permute transpose movedim moveaxis swapaxes swapdims")
#: Operators that move elements of their only tensor by their places, of whatever dtype it is.
_MOVES = (
    (MOVES - named("as_strided_copy upsample_nearest2d"))
    | _PERMUTES
    | named(
        "flatten unflatten chunk split split_with_sizes tensor_split unbind narrow"
        " roll rot90 tile pixel_shuffle pixel_unshuffle channel_shuffle mT"
    )
)


@dataclass(frozen=True)
class _Moved:
    """Masked scores, and the operators between them and what reads them.

    Attributes:
        scores: the operator that masks scores, or a concatenation of which ``parts`` are masked scores.
        mask: its mask, with the number that is behind the operators.
        operators: what moves the masked scores, in order.
        parts: the parts of a concatenation, None for one that is not masked.
    """

    scores: Node
    mask: Mask
    operators: tuple[Node, ...] = ()
    parts: tuple[_Moved | None, ...] = ()


def mask_behind_moves(model: GraphModule) -> None:
    """Write ``softmax(move(masked_fill(x, m, -1e9)))`` as ``softmax(masked_fill(move(x), move(m), -1e9))``.

    A move is a permutation, a slice, a concatenation with other scores, and the like; a clamp and a positive factor
    are moved before the mask as well. Masks that are added are moved alike. Behind a move a softmax does not know its
    scores as masked, and the number of the mask leaves them only one code. What else reads the masked scores still
    reads them; the logarithm of a softmax gets its own.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        values = ConstantValues(module)
        moves = _Moves(values)
        written: dict[Node, Node] = {}
        for reader in _readers(module, values):
            source = reader.args[0]
            assert isinstance(source, Node)
            moved = moves.of(source)
            if moved is None:
                continue
            if not (moved.operators or moved.parts or _is_shared(reader)):
                continue
            if source not in written:
                written[source] = _masked(Writer(reader), moved)
            reader.replace_input_with(source, written[source])
        if written:
            module.graph.eliminate_dead_code()
        module.recompile()


def _is_shared(logarithm: Node) -> bool:
    """Tell whether the scores of a logarithm have readers that keep their mask as it is, such as a result."""
    source: Any = logarithm.args[0]
    known = (*_LOGARITHMS, *_SOFTMAXES, _ATEN.amax.default, _ATEN.max.dim)
    if logarithm.target not in _LOGARITHMS:
        return False
    return any(reader.target not in known for reader in source.users)


def _readers(module: GraphModule, values: ConstantValues) -> Iterator[Node]:
    """Give the softmaxes that do not read masked scores, and logarithms of a softmax, in the order of the graph."""
    unmasked = set()
    for softmax in softmaxes(module):
        if _mask_of(softmax.source, values) is None:
            unmasked.add(softmax.node)
    for node in list(module.graph.nodes):
        if node in unmasked or node.target in _LOGARITHMS:
            yield node


def _mask_of(node: Node, values: ConstantValues) -> Mask | None:
    """Return the mask of an operator that masks scores; None for any other."""
    if node.target in (*WHERES, *FILLS):
        mask = condition_of(values, node)
        if mask is None:
            return None
        for each in node.args:
            number = _number(each, values)
            if number is not None and number == mask.number:
                return mask
    if node.target != _ADD:
        return None
    for scores, mask_node in either_way(node):
        constant = values.of(mask_node)
        is_low = constant is not None and bool((constant <= MASKED).any())
        if is_low or is_additive(values, mask_node, scores):
            return Mask(scores, mask_node)
    return None


def _number(value: object, values: ConstantValues) -> float | None:
    """Return a number, or the only one of a tensor."""
    if isinstance(value, (int, float)):
        return float(value)
    filler = filler_of(value)
    return number_of(values.of(value)) if filler is None else filler


class _Moves:
    """Finds the masked scores that nodes show.

    Args:
        values: the constants of the graph.
    """

    def __init__(self, values: ConstantValues) -> None:
        self._values = values
        self._found: dict[Node, _Moved | None] = {}

    def of(self, node: Node) -> _Moved | None:
        """Return the masked scores that a node shows, and what moves them; None if it shows none."""
        node = before_casts(node)
        if node not in self._found:
            self._found[node] = self._find(node)
        return self._found[node]

    def _find(self, node: Node) -> _Moved | None:
        mask = _mask_of(node, self._values)
        if mask is not None:
            value = tensor_of(node)
            is_fixed = value is not None and is_static(value)
            return _Moved(node, mask) if is_fixed else None
        if node.target == _CAT:
            return self._joined(node)
        if not _is_move(node):
            return None
        moved = self.of(node.all_input_nodes[0])
        return None if moved is None else self._behind(moved, node)

    def _behind(self, moved: _Moved, node: Node) -> _Moved | None:
        """Return masked scores behind one more operator; None if they are not known as masked there."""
        mask = moved.mask
        is_constant = self._values.of(mask.node) is not None
        if node.target in _LIMITS:
            if not mask.fills:
                return None
            target: Any = node.target
            number = target(torch.tensor(mask.number), *node.args[1:], **node.kwargs)
            mask = replace(mask, number=float(number))
        elif not (mask.fills or is_constant or op_name(node) in MOVES):
            # An additive mask of run time is not known as one behind this operator.
            return None
        if not mask.number <= MASKED:
            return None
        return replace(moved, mask=mask, operators=(*moved.operators, node))

    def _joined(self, node: Node) -> _Moved | None:
        """Return masked scores that are parts of a concatenation; None if their masks are not of one kind."""
        operands: Any = node.args[0]
        parts = tuple(self.of(operand) for operand in operands)
        masks = [part.mask for part in parts if part is not None]
        kinds = {(mask.fills, mask.inverted, mask.number) for mask in masks}
        if len(kinds) != 1:
            return None
        are_constant = all(self._values.of(mask.node) is not None for mask in masks)
        is_whole = masks[0].fills and len(masks) == len(parts)
        return _Moved(node, masks[0], (), parts) if are_constant or is_whole else None


def _is_move(node: Node) -> bool:
    """Tell whether an operator moves the elements of its only tensor, scales them or limits them."""
    if len(node.all_input_nodes) != 1:
        return False
    if node.target in _SCALES:
        # A negative one would leave the number no mask's.
        return isinstance(node.args[1], (int, float))
    is_limit = node.target in _LIMITS
    return is_limit or node.target is getitem or op_name(node) in _MOVES


def _masked(write: Writer, moved: _Moved) -> Node:
    """Write the mask behind what moves its scores."""
    scores, hidden = _written(write, moved)
    mask = moved.mask
    if not mask.fills:
        return write(_ADD, scores, hidden)
    if mask.inverted:
        return write(_ATEN.masked_fill.Scalar, scores, hidden, mask.number)
    return write(_ATEN.where.ScalarOther, hidden, scores, mask.number)


def _written(write: Writer, moved: _Moved) -> tuple[Node, Node]:
    """Write what moves masked scores for the scores, and for their mask."""
    if moved.parts:
        scores, hidden = _joined(write, moved)
    else:
        scores = _of_sizes(write, moved.mask.scores, moved.scores)
        hidden = moved.mask.node
    for before, node in pairwise((moved.scores, *moved.operators)):
        scores = _moved(write, node, scores)
        if node.target in _LIMITS:
            continue
        prepared = _of_rank if op_name(node) in _PERMUTES else _of_sizes
        hidden = prepared(write, hidden, before)
        hidden = _moved(write, node, hidden)
    return scores, hidden


def _joined(write: Writer, moved: _Moved) -> tuple[Node, Node]:
    """Write a concatenation of scores, and one of masks, which hide nothing of other parts."""
    operands: Any = moved.scores.args[0]
    scores: list[Node] = []
    masks: list[Node] = []
    for position, (operand, part) in enumerate(zip(operands, moved.parts, strict=True)):
        if part is None:
            shape = operand.meta["val"].shape
            none = _unmasked(moved.mask).expand(shape).clone()
            scores.append(operand)
            masks.append(write.constant(none, f"unmasked_{position}"))
            continue
        shown, hidden = _written(write, part)
        scores.append(shown)
        masks.append(_of_sizes(write, hidden, operand))
    how = moved.scores.args[1:]
    return write(_CAT, scores, *how), write(_CAT, masks, *how)


def _of_sizes(write: Writer, value: Node, like: Node) -> Node:
    """Write a value with the sizes of another; a list of values as it is."""
    before, after = tensor_of(value), tensor_of(like)
    if before is None or after is None or before.shape == after.shape:
        return value
    return write(_ATEN.expand.default, value, list(after.shape))


def _of_rank(write: Writer, value: Node, like: Node) -> Node:
    """Write a value with the rank of another, of size 1 in the dimensions that it lacks."""
    before, after = tensor_of(value), tensor_of(like)
    assert before is not None
    assert after is not None
    missing = after.dim() - before.dim()
    if not missing:
        return value
    return write(_ATEN.reshape.default, value, [1] * missing + list(before.shape))


def _moved(write: Writer, node: Node, value: Node) -> Node:
    """Write an operator of one tensor with another in its place."""
    target: Any = node.target
    if op_name(node) in RESHAPES:
        shape = list(node.meta["val"].shape)
        return write(_ATEN.reshape.default, value, shape)
    return write(target, value, *node.args[1:], **node.kwargs)


def _unmasked(mask: Mask) -> torch.Tensor:
    """Return what a mask is where it hides nothing."""
    if mask.fills:
        return torch.tensor(not mask.inverted)
    return torch.tensor(0.0)
