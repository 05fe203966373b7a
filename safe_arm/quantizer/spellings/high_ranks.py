"""Operators on more than six dimensions are written with fewer, between the reshapes around them.

TOSA takes six dimensions, and stock leaves what has more outside the delegate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules, op_name
from safe_arm.core.operators import named
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    replace_node,
    rewrite_nodes,
    static_sizes,
)

_ATEN = torch.ops.aten
_RESHAPE = _ATEN.reshape.default
_PERMUTATIONS = (_ATEN.permute.default, _ATEN.transpose.int)
#: The most dimensions that TOSA takes.
MOST_DIMENSIONS = 6
_SOFTMAX = _ATEN.softmax.int
_SUM = _ATEN.sum.dim_IntList
#: Operators that compute the same without a dimension of size 1.
_APART = (
    _SOFTMAX,
    _SUM,
    _ATEN.add.Tensor,
    _ATEN.mul.Tensor,
    _ATEN.sub.Tensor,
)
_RESHAPES = named(
    "view reshape _unsafe_view flatten unflatten squeeze unsqueeze view_as reshape_as"
)
#: A shape that a value is given, and the order in which its dimensions are read then.
Step = tuple[list[int], list[int]]


def lower_ranks(model: GraphModule) -> None:
    """Write permutations between two reshapes, and reshapes of reshapes, without more than six dimensions.

    Products, sums and softmaxes are computed without dimensions of size 1, as those of RAFT's convex upsampling of
    one image.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place. A value
            of more dimensions that something else reads stays, and so does one with a dynamic size.
    """
    for module in graph_modules(model):
        rewrite_nodes(module, _leave_out_ones)
        rewrite_nodes(module, _write_apart)
        rewrite_nodes(module, _skip_high_rank)


def steps(sizes: list[int], order: list[int]) -> list[Step]:
    """Return reshapes and permutations that together are one permutation, none with more than six dimensions.

    One is enough unless more than six groups of dimensions change places. Otherwise two neighbours move together
    first, and the second of them goes where it belongs afterwards.

    Args:
        sizes: of the dimensions that are permuted.
        order: the dimensions in their new order.
    """
    groups = _groups(sizes, order)
    if len(groups) < 2:
        return []
    if len(groups) <= MOST_DIMENSIONS:
        by_place = sorted(groups)
        shape = []
        for group in by_place:
            size = 1
            for dim in group:
                size *= sizes[dim]
            shape.append(size)
        return [(shape, [by_place.index(group) for group in groups])]
    first, second = sorted(groups)[:2]
    together = []
    for group in groups:
        if group is not second:
            together += group
        if group is first:
            together += second
    missing = [dim for dim in range(len(sizes)) if dim not in together]
    together += missing
    moved_sizes = [sizes[dim] for dim in together]
    moved_order = [together.index(dim) for dim in order]
    return steps(sizes, together) + steps(moved_sizes, moved_order)


def _groups(sizes: list[int], order: list[int]) -> list[list[int]]:
    """Return runs of dimensions that stay neighbours, in their new order; those of size 1 are left out."""
    places: dict[int, int] = {}
    for dim, size in enumerate(sizes):
        if size != 1:
            places[dim] = len(places)
    groups: list[list[int]] = []
    for dim in order:
        if dim not in places:
            continue
        if groups and places[groups[-1][-1]] + 1 == places[dim]:
            groups[-1].append(dim)
        else:
            groups.append([dim])
    return groups


def _leave_out_ones(node: Node) -> bool:
    """Compute an operator on more than six dimensions without some of size 1, and tell whether it has enough."""
    if node.target not in _APART or not _is_high(node.args[0]):
        return False
    shapes = [static_sizes(operand) for operand in node.all_input_nodes]
    rank = len(static_sizes(node.args[0]) or [])
    left_out = []
    for dim in range(rank):
        is_needed = dim in _reduced(node, rank)
        if not is_needed and all(_has_one(shape, dim, rank) for shape in shapes):
            left_out.append(dim)
    left_out = left_out[: rank - MOST_DIMENSIONS]
    if len(left_out) < rank - MOST_DIMENSIONS:
        return False
    _compute_without(node, left_out, rank)
    return True


def _has_one(shape: list[int] | None, dim: int, rank: int) -> bool:
    return shape is not None and len(shape) == rank and shape[dim] == 1


def _reduced(node: Node, rank: int) -> list[int]:
    """Return the dimensions that a softmax or a sum is taken over."""
    if node.target not in (_SOFTMAX, _SUM):
        return []
    dims: Any = node.args[1]
    if isinstance(dims, int):
        return [dims % rank]
    return [dim % rank for dim in dims or range(rank)]


def _compute_without(node: Node, left_out: list[int], rank: int) -> None:
    """Write an operator between reshapes that leave out dimensions of its operands, and give it its shape again."""
    write = Writer(node)
    kept = [dim for dim in range(rank) if dim not in left_out]
    arguments: list[Any] = []
    for argument in node.args:
        shape = static_sizes(argument)
        if shape is not None:
            argument = write(_RESHAPE, argument, [shape[dim] for dim in kept])
        arguments.append(argument)
    if node.target is _SOFTMAX:
        arguments[1] = kept.index(*_reduced(node, rank))
    if node.target is _SUM:
        arguments[1] = [kept.index(dim) for dim in _reduced(node, rank)]
    target: Any = node.target
    computed = write(target, *arguments, **node.kwargs)
    replace_node(node, write(_RESHAPE, computed, static_sizes(node)))


def _write_apart(permute: Node) -> bool:
    """Write a permutation in steps, and tell whether it was one between reshapes; the last step has its own shape."""
    if permute.target not in _PERMUTATIONS or not _is_between_reshapes(permute):
        return False
    write = Writer(permute)
    x = permute.args[0]
    sizes = static_sizes(x)
    shape = static_sizes(permute)
    assert sizes is not None
    assert shape is not None
    for step_shape, step_order in steps(sizes, _order(permute)):
        x = write(_RESHAPE, x, step_shape)
        x = write(_ATEN.permute.default, x, step_order)
    written = write(_RESHAPE, x, shape)
    replace_node(permute, written)
    return True


def _order(permute: Node) -> list[int]:
    value = permute.meta["val"]
    rank = value.dim()
    if permute.target is _ATEN.permute.default:
        dims: list[int] = list(permute.args[1])  # type: ignore[arg-type]
        return [dim % rank for dim in dims]
    order = list(range(rank))
    first, second = permute.args[1:3]
    assert isinstance(first, int)
    assert isinstance(second, int)
    order[first], order[second] = order[second], order[first]
    return order


def _is_between_reshapes(permute: Node) -> bool:
    """Return whether a permutation of a high rank has only reshapes from and to low ranks as neighbours."""
    source = permute.args[0]
    if not isinstance(source, Node) or not _is_high(source):
        return False
    if _low_source(source) is None or not permute.users:
        return False
    return all(_is_reshape(user) and _is_low(user) for user in permute.users)


def _skip_high_rank(node: Node) -> bool:
    """Let a reshape to a low rank read what a reshape to a high rank reads; tell whether it does now."""
    if not _is_reshape(node) or not _is_low(node):
        return False
    source = node.all_input_nodes[0]
    if not _is_high(source):
        return False
    low = _low_source(source)
    if low is None:
        return False
    reshaped = Writer(node)(_RESHAPE, low, static_sizes(node))
    replace_node(node, reshaped)
    return True


def _low_source(node: Node) -> Node | None:
    """Return the value of a low rank that reshapes make into one of a high rank; None if there is none."""
    while _is_high(node):
        source = node.args[0] if _is_reshape(node) else None
        if not isinstance(source, Node):
            return None
        node = source
    return node if _is_low(node) else None


def _is_reshape(node: Node) -> bool:
    return node.op == "call_function" and op_name(node) in _RESHAPES


def _is_high(node: object) -> bool:
    sizes = static_sizes(node)
    return sizes is not None and len(sizes) > MOST_DIMENSIONS


def _is_low(node: Node) -> bool:
    sizes = static_sizes(node)
    return sizes is not None and len(sizes) <= MOST_DIMENSIONS
