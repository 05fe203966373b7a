"""Masks that are inputs, or computed from inputs, leave the domain of the scores to the scores, too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, Node

from safe_arm.core.island import graph_modules, op_name
from safe_arm.core.operators import VIEWS, ElementOrigin, operators
from safe_arm.quantizer.constant_values import ConstantValues
from safe_arm.quantizer.graph_edits import add_call, add_constant, tensor_of
from safe_arm.quantizer.mask_bounds import MASKED, bound_of
from safe_arm.quantizer.softmaxes import (
    Softmax,
    distances,
    normalised,
    softmaxes,
    total,
)

_ATEN = torch.ops.aten
_FILLS = (_ATEN.masked_fill.Scalar, _ATEN.masked_fill.Tensor)
_WHERES = (
    _ATEN.where.self,
    _ATEN.where.ScalarOther,
    _ATEN.where.ScalarSelf,
    _ATEN.where.Scalar,
)
_PRODUCTS = (_ATEN.mul.Tensor, _ATEN.mul.Scalar)
#: A mask is a multiple of this at least; with a lower one no rescale takes it to its limit.
_LOWEST_FACTOR = -3e4
_MOVES = VIEWS | operators(ElementOrigin.PART)


def mask_at_run_time(model: GraphModule) -> None:
    """Write a softmax whose mask depends on an input so that the mask does not widen the domain of the scores.

    The mask is applied twice: to the scores, whose maximum is then that of those that are kept, and to their
    distances to it, in domains of their own in which a masked one is the least code. In a row that is masked as a
    whole all are least, and as likely as each other.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        values = ConstantValues(module)
        sums: dict[Node, _Sums] = {}
        written = False
        for softmax in list(softmaxes(module)):
            mask = _mask(values, softmax)
            if mask is None:
                continue
            if not mask.fills and mask.node not in sums:
                sums[mask.node] = _sums(module.graph, mask.node)
            softmax.replace(_written(module, softmax, mask, sums))
            written = True
        if written:
            module.graph.eliminate_dead_code()
        module.recompile()


def inputs_of_masks(model: GraphModule) -> set[Node]:
    """Return the inputs of which a mask is a multiple by a low number, so that they are 0 or 1."""
    values = ConstantValues(model)
    found = set()
    for target in _PRODUCTS:
        for node in model.graph.find_nodes(op="call_function", target=target):
            source, factor = node.args[:2]
            if not values.are_at_most(factor, MASKED):
                continue
            while isinstance(source, Node) and len(source.all_input_nodes) == 1:
                source = source.all_input_nodes[0]
            if isinstance(source, Node) and source.op == "placeholder":
                found.add(source)
    return found


@dataclass(frozen=True)
class _Mask:
    """A mask that depends on an input.

    Attributes:
        scores: what is masked.
        node: the mask.
        fills: it is a condition under which a score is kept or, with ``inverted``, masked; else it is added.
    """

    scores: Node
    node: Node
    fills: bool = False
    inverted: bool = False


def _mask(values: ConstantValues, softmax: Softmax) -> _Mask | None:
    """Return the mask of a softmax; None if there is none, or if it is constant."""
    node = softmax.source
    mask = None
    if node.target in (*_WHERES, *_FILLS):
        mask = _condition(values, node, MASKED)
    elif node.target == _ATEN.add.Tensor and not node.kwargs:
        mask = _added(values, node)
    if mask is None or values.of(mask.node) is not None:
        return None
    return mask


def _condition(values: ConstantValues, node: Node, low: float) -> _Mask | None:
    """Return the mask of an operator that puts a low number in the place of what is masked."""
    if node.target in _FILLS:
        kept, condition, number = node.args[:3]
        inverted = True
    else:
        condition, kept, number = node.args[:3]
        inverted = False
        if values.are_at_most(kept, low):
            kept, number, inverted = number, kept, True
    if not values.are_at_most(number, low):
        return None
    if not isinstance(kept, Node) or not isinstance(condition, Node):
        return None
    value = tensor_of(condition)
    if value is None or value.dtype != torch.bool:
        return None
    return _Mask(kept, condition, fills=True, inverted=inverted)


def _added(values: ConstantValues, node: Node) -> _Mask | None:
    """Return the mask that is added."""
    left, right = node.args[:2]
    for scores, mask in ((left, right), (right, left)):
        if isinstance(scores, Node) and _is_additive(values, mask, scores):
            return _Mask(scores, mask)  # type: ignore[arg-type]
    return None


def _is_additive(values: ConstantValues, mask: object, scores: Node) -> bool:
    """Return whether a value is a multiple of a low number, two numbers of which one masks, or a smaller input."""
    value, other = tensor_of(mask), tensor_of(scores)
    if value is None or other is None or not value.is_floating_point():
        return False
    source = _moved_from(mask)  # type: ignore[arg-type]
    if source.op == "placeholder":
        return bool(value.numel() < other.numel())
    if source.target in _PRODUCTS:
        factors = source.args[:2]
        return any(values.are_at_most(factor, MASKED) for factor in factors)
    if source.target not in (*_WHERES, *_FILLS):
        return False
    numbers = source.args[1:]
    if source.target in _FILLS:
        numbers = source.args[::2]
    for number in numbers:
        if not values.are_at_most(number, torch.inf):
            return False
    return any(values.are_at_most(number, MASKED) for number in numbers)


def _moved_from(node: Node) -> Node:
    """Return the value whose elements a node shows."""
    while op_name(node) in _MOVES:
        source = node.args[0]
        if not isinstance(source, Node):
            break
        node = source
    return node


def _written(
    module: GraphModule, softmax: Softmax, mask: _Mask, sums: Mapping[Node, _Sums]
) -> Node:
    """Write the softmax of masked scores, and return it."""
    graph = module.graph
    dim = softmax.dim
    with graph.inserting_before(softmax.node):
        if mask.fills:
            masking: _Masking = _Choice(module, softmax, mask)
        else:
            masking = _Sum(graph, sums[mask.node])
        masked = masking.of_scores(mask.scores)
        distance = distances(graph, masked, dim)
        masked = masking.of_distances(distance)
        distance = distances(graph, masked, dim)
        e = add_call(graph, _ATEN.exp.default, distance)
        divisor = total(graph, e, dim)
        return normalised(graph, e, divisor)


class _Masking(ABC):
    """Masks values."""

    @abstractmethod
    def of_scores(self, x: Node) -> Node:
        """Write scores of which those that are masked are below all others."""

    @abstractmethod
    def of_distances(self, x: Node) -> Node:
        """Write distances to a maximum alike; what the mask adds to those that are kept is in them."""


class _Choice(_Masking):
    """Masks values by a condition."""

    def __init__(self, module: GraphModule, softmax: Softmax, mask: _Mask) -> None:
        self._graph = module.graph
        keep = mask.node
        if mask.inverted:
            keep = add_call(self._graph, _ATEN.logical_not.default, keep)
        like = softmax.value
        shape = [1] * like.dim()
        none = torch.zeros(shape, dtype=torch.bool)
        low = bound_of(none, like.dtype)
        name = f"mask_of_{softmax.node.name}_low"
        self._keep = keep
        self._low = add_constant(module, name, low, like)

    def of_scores(self, x: Node) -> Node:
        return add_call(self._graph, _ATEN.where.self, self._keep, x, self._low)

    of_distances = of_scores


class _Sum(_Masking):
    """Masks values by a sum."""

    def __init__(self, graph: Graph, sums: _Sums) -> None:
        self._graph = graph
        self._sums = sums

    def of_scores(self, x: Node) -> Node:
        return add_call(self._graph, _ATEN.add.Tensor, x, self._sums.limited)

    def of_distances(self, x: Node) -> Node:
        return add_call(self._graph, _ATEN.add.Tensor, x, self._sums.alone)


@dataclass(frozen=True)
class _Sums:
    """What an additive mask adds, written behind it once for all that read it.

    Attributes:
        limited: the mask, limited where it masks.
        alone: what is left of it where it masks, 0 where it does not.
    """

    limited: Node
    alone: Node


def _sums(graph: Graph, mask: Node) -> _Sums:
    limited = _limited(graph, mask)
    with graph.inserting_after(limited):
        raised = add_call(graph, _ATEN.add.Tensor, limited, -MASKED / 2)
    with graph.inserting_after(raised):
        alone = add_call(graph, _ATEN.clamp.default, raised, None, 0.0)
    return _Sums(limited, alone)


def _limited(graph: Graph, mask: Node) -> Node:
    """Write an additive mask that is limited where it comes from; how it was moved from there is repeated."""
    source = _moved_from(mask)
    if mask is source:
        _raise_factor(source)
        with graph.inserting_after(_last_input(mask)):
            return add_call(graph, _ATEN.clamp.default, mask, MASKED)
    before = _limited(graph, mask.args[0])  # type: ignore[arg-type]
    with graph.inserting_after(mask):
        return add_call(graph, mask.target, before, *mask.args[1:], **mask.kwargs)  # type: ignore[arg-type]


def _raise_factor(source: Node) -> None:
    """Raise the number that a mask is a multiple of, where it is beyond what can be rescaled."""
    if source.target not in _PRODUCTS:
        return
    left, right = source.args[:2]
    if isinstance(right, float) and right < _LOWEST_FACTOR:
        source.args = (left, _LOWEST_FACTOR)


def _last_input(node: Node) -> Node:
    """Return the last input of a graph for an input, any other node as it is."""
    while node.op == "placeholder" and node.next.op == "placeholder":
        node = node.next
    return node
