"""What is computed of the index of an extreme is computed in 32 bits, as TOSA has no more.

The row and the column of a peak are ``i // width`` and ``i % width`` of ``i = heat.flatten(1).argmax(1)``. They have 64
bits, and stock leaves them on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Argument

from safe_arm.core.island import arguments_by_name, graph_modules, op_name
from safe_arm.core.operators import ElementOrigin, operators
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    has_dtype,
    is_call,
    static_sizes,
)

_ATEN = torch.ops.aten
_CAST = _ATEN.to.dtype
_EXTREMES = (_ATEN.argmax.default, _ATEN.argmin.default)
_INTEGERS = (torch.int32, torch.int64)
_MOVES = operators(ElementOrigin.VIEW, ElementOrigin.PART, ElementOrigin.JOINED)
#: Largest number of 32 bits.
_LARGEST = torch.iinfo(torch.int32).max

#: The least and the largest value of an index.
Range = tuple[int, int]


def narrow_indices(model: GraphModule) -> None:
    """Compute in 32 bits what sums, products, quotients and remainders make of the index of an extreme.

    What reads the result as an integer of 64 bits, as an output does, gets it cast.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        _narrow(module)


def _narrow(module: GraphModule) -> None:
    """Narrow the indices of one graph."""
    ranges = _ranges(module.graph.nodes)
    computed: set[Node] = set()
    for node in ranges:
        is_computed = node.target in _RESULTS or not computed.isdisjoint(
            node.all_input_nodes
        )
        if is_computed and has_dtype(node, torch.int64):
            computed.add(node)
    narrow: dict[Node, Node] = {}
    for node in ranges:
        if node in computed:
            _write_narrow(node, narrow)
    for node in computed:
        _read_narrow(node, narrow, computed)
    if computed:
        module.graph.eliminate_dead_code()
        module.recompile()


def _ranges(nodes: Iterable[Node]) -> dict[Node, Range]:
    """Return the integers that are computed of an index and fit into 32 bits, in order, each with its range."""
    ranges: dict[Node, Range] = {}
    for node in nodes:
        found = _range(node, ranges)
        if found is None:
            continue
        least, largest = found
        if least >= -_LARGEST and largest <= _LARGEST:
            ranges[node] = found
    return ranges


def _range(node: Node, ranges: dict[Node, Range]) -> Range | None:
    """Return the range of a result; None of what is no integer that is computed of an index."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    if not has_dtype(node, *_INTEGERS) or static_sizes(node) is None:
        return None
    if node.target in _EXTREMES:
        return _places(node)
    operands = node.all_input_nodes
    if not operands or not all(operand in ranges for operand in operands):
        return None
    if op_name(node) in _MOVES or is_call(node, _CAST):
        return _union([ranges[operand] for operand in operands])
    if node.target not in _RESULTS:
        return None
    first, second = (_operand_range(each, ranges) for each in node.args[:2])
    if first is None or second is None or not _is_plain(node):
        return None
    return _RESULTS[node.target](first, second)


def _union(ranges: list[Range]) -> Range:
    """Return the least range that has all others in it."""
    least = min(low for low, _ in ranges)
    largest = max(high for _, high in ranges)
    return least, largest


def _places(extreme: Node) -> Range | None:
    """Return the first and the last place of a dimension, or of all elements."""
    x, dim, _ = arguments_by_name(extreme).values()
    sizes = static_sizes(x)
    if sizes is None:
        return None
    count = math.prod(sizes) if dim is None or not sizes else sizes[dim]
    return 0, count - 1


def _operand_range(operand: Argument, ranges: dict[Node, Range]) -> Range | None:
    if isinstance(operand, Node):
        return ranges.get(operand)
    if isinstance(operand, int):
        return operand, operand
    return None


def _is_plain(node: Node) -> bool:
    """Tell whether an operator rounds down, if it divides, and has no factor."""
    return node.kwargs in ({}, {"rounding_mode": "floor"}, {"rounding_mode": "trunc"})


def _sum(first: Range, second: Range) -> Range:
    return first[0] + second[0], first[1] + second[1]


def _difference(first: Range, second: Range) -> Range:
    return first[0] - second[1], first[1] - second[0]


def _product(first: Range, second: Range) -> Range:
    corners = [one * other for one in first for other in second]
    return min(corners), max(corners)


def _quotient(first: Range, second: Range) -> Range | None:
    """Return the range of a quotient of numbers that are not below zero, where all roundings are one."""
    if first[0] < 0 or second[0] < 1:
        return None
    return first[0] // second[1], first[1] // second[0]


def _remainder(first: Range, second: Range) -> Range | None:
    if first[0] < 0 or second[0] < 1:
        return None
    return 0, min(first[1], second[1] - 1)


#: The range of a result by those of both operands.
_RESULTS: dict[Any, Callable[[Range, Range], Range | None]] = {
    _ATEN.add.Tensor: _sum,
    _ATEN.sub.Tensor: _difference,
    _ATEN.mul.Tensor: _product,
    _ATEN.floor_divide.default: _quotient,
    _ATEN.div.Tensor_mode: _quotient,
    _ATEN.remainder.Scalar: _remainder,
    _ATEN.remainder.Tensor: _remainder,
}


def _write_narrow(node: Node, narrow: dict[Node, Node]) -> None:
    """Write an operator anew that reads and gives integers of 32 bits."""
    for operand in node.all_input_nodes:
        if operand in narrow:
            continue
        narrow[operand] = operand
        if has_dtype(operand, torch.int64):
            narrow[operand] = Writer(node)(_CAST, operand, torch.int32)
    if is_call(node, _CAST):
        narrow[node] = narrow[node.all_input_nodes[0]]
        return
    assert callable(node.target)
    arguments = torch.fx.node.map_arg(node.args, narrow.__getitem__)
    narrow[node] = Writer(node)(node.target, *arguments, **node.kwargs)


def _read_narrow(node: Node, narrow: dict[Node, Node], computed: set[Node]) -> None:
    """Let what reads an index as floats, or in 32 bits, read the narrow one, and the rest a cast of it."""
    for reader in list(node.users):
        if reader in computed:
            continue
        if is_call(reader, _CAST):
            reader.replace_input_with(node, narrow[node])
            continue
        wide = Writer(reader)(_CAST, narrow[node], torch.int64)
        reader.replace_input_with(node, wide)
