"""Permutations of more than six dimensions are written with fewer, between the reshapes around them.

TOSA takes six dimensions, and stock leaves what has more outside the delegate.
"""

from __future__ import annotations

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
_MOST = 6
_RESHAPES = named(
    "view reshape _unsafe_view flatten unflatten squeeze unsqueeze view_as reshape_as"
)
#: A shape that a value is given, and the order in which its dimensions are read then.
Step = tuple[list[int], list[int]]


def lower_ranks(model: GraphModule) -> None:
    """Write permutations between two reshapes, and reshapes of reshapes, without more than six dimensions.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place. A value
            of more dimensions that something else reads stays, and so does one with a dynamic size.
    """
    for module in graph_modules(model):
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
    if len(groups) <= _MOST:
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


def _is_high(node: Node) -> bool:
    sizes = static_sizes(node)
    return sizes is not None and len(sizes) > _MOST


def _is_low(node: Node) -> bool:
    sizes = static_sizes(node)
    return sizes is not None and len(sizes) <= _MOST
