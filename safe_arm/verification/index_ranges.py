"""The range of an integer input in which it, and what constants make of it, is a valid index or shift."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import Argument
from torch.utils._pytree import tree_leaves

from safe_arm.core.island import op_name
from safe_arm.core.operators import ElementOrigin, named, operators

#: The least and the largest value; infinite where there is no limit.
Range = tuple[float, float]

MOVES = operators(
    ElementOrigin.VIEW, ElementOrigin.PART, ElementOrigin.JOINED, ElementOrigin.CAST
)
_SHIFTS = frozenset(
    ("bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__")
)
#: Operators that take a dimension and then the index into it.
_AT_DIM = frozenset(
    [
        "index_select",
        "gather",
        "index_copy",
        "scatter",
        "scatter_add",
        "index_fill",
        "scatter_src",
    ]
)
_FULL = named("full")
_SUMS = named("add sub rsub")
_PRODUCTS = named("mul")
_QUOTIENTS = named("div floor_divide")
_LIMITS = named("clamp minimum maximum clamp_min clamp_max hardtanh")
_ARITHMETIC = _SUMS | _PRODUCTS | _QUOTIENTS | _LIMITS
_WRITES = named("index_copy index_fill index_put index_put_ scatter scatter_src")


def index_range(node: Node, constants: Mapping[Node, Tensor]) -> Range | None:
    """Return the range that a value must stay in; None if it has none, or if there is no such range.

    Args:
        node: an integer.
        constants: values of placeholders.
    """
    ranges = list(_ranges(node, constants))
    if not ranges:
        return None
    low, high = _common(ranges)
    if high < low:
        return None
    return low, high


def writes_to(node: Node) -> bool:
    """Tell whether a value, or what constants make of it, is an index that something is written to."""
    for user in node.users:
        if op_name(user) in _WRITES and any(_own_ranges(user, node)):
            return True
        if (_moves(user, node) or _is_followed(user)) and writes_to(user):
            return True
    return False


def _ranges(node: Node, constants: Mapping[Node, Tensor]) -> Iterator[Range]:
    """Yield the range that each index computed from a value sets it."""
    for user in node.users:
        yield from _own_ranges(user, node)
        if _moves(user, node):
            yield from _ranges(user, constants)
            continue
        if not _is_followed(user):
            continue
        for result in _ranges(user, constants):
            operand = _before(user, node, result, constants)
            if operand is not None:
                yield operand


def _is_followed(user: Node) -> bool:
    """Tell whether an operator is arithmetic of integers whose operands a range of its result limits."""
    if op_name(user) not in _ARITHMETIC:
        return False
    return not user.meta["val"].dtype.is_floating_point


def _moves(user: Node, node: Node) -> bool:
    """Tell whether an operator only moves or casts a value."""
    return op_name(user) in MOVES and node in tree_leaves(user.args[0])


def _common(ranges: list[Range]) -> Range:
    """Return the values that lie in every range."""
    least = max(low for low, _ in ranges)
    largest = min(high for _, high in ranges)
    return least, largest


def _own_ranges(reader: Node, index: Node) -> Iterator[Range]:
    """Yield the ranges that an operator sets an index or a shift that it reads."""
    name = op_name(reader).removeprefix("aten::")
    if name in _AT_DIM and reader.args[2] is index:
        yield _places(reader.args[0], reader.args[1])
    elif name in _SHIFTS and reader.args[1] is index:
        yield 0, torch.iinfo(reader.meta["val"].dtype).bits - 1
    elif name == "embedding" and reader.args[1] is index:
        yield _places(reader.args[0], 0)
    elif name in ("index", "index_put", "index_put_") or name.startswith("index."):
        if index.meta["val"].dtype == torch.bool:
            return
        for dim, each in enumerate(reader.args[1]):  # type: ignore[arg-type]
            if each is index:
                yield _places(reader.args[0], dim)


def _places(node: Argument, dim: Argument) -> Range:
    """Return the first and the last place of a dimension."""
    size = node.meta["val"].shape[dim]  # type: ignore
    return 0, size - 1


def _before(
    user: Node,
    node: Node,
    result: Range,
    constants: Mapping[Node, Tensor],
) -> Range | None:
    """Return the range of an operand that an operator of it and constants turns into a range of its result."""
    name = op_name(user)
    if name in _LIMITS:
        return _before_limits(user, result, constants)
    if len(user.args) != 2 or "alpha" in user.kwargs:
        return None
    first, second = user.args
    if name == "aten::rsub":
        first, second = second, first
    is_first = first is node
    constant = _constant(second if is_first else first, constants)
    if constant is None:
        return None
    if name in _PRODUCTS:
        return _common([_before_product(result, by) for by in constant])
    if name in _QUOTIENTS:
        rounds_down = user.kwargs.get("rounding_mode", "floor") == "floor"
        if not is_first or not rounds_down or constant[0] <= 0:
            return None
        return _common([_before_quotient(result, by) for by in constant])
    low, high = result
    least, largest = constant
    if name == "aten::add":
        return low - least, high - largest
    if is_first:
        return low + largest, high + least
    return largest - high, least - low


def _before_product(result: Range, by: float) -> Range:
    low, high = result
    if not by:
        return -math.inf, math.inf
    if by < 0:
        low, high = high, low
    least = _whole(low / by, math.ceil)
    largest = _whole(high / by, math.floor)
    return least, largest


def _before_quotient(result: Range, by: float) -> Range:
    low, high = result
    return low * by, high * by + by - 1


def _before_limits(
    user: Node,
    result: Range,
    constants: Mapping[Node, Tensor],
) -> Range | None:
    """Return the range of what is clamped: it needs no limit where the clamp has one that is as tight."""
    limits = _clamp(user, constants)
    if limits is None:
        return None
    low, high = result
    least, largest = limits
    if least >= low:
        low = -math.inf
    if largest <= high:
        high = math.inf
    return low, high


def _clamp(node: Node, constants: Mapping[Node, Tensor]) -> Range | None:
    """Return the limits of a clamp by constants, or of the larger or the smaller of a value and a constant."""
    name = op_name(node)
    bounds: list[Argument] = [None, None]
    if name in ("aten::minimum", "aten::maximum"):
        for each in node.args:
            if _constant(each, constants) is not None:
                bounds[name == "aten::minimum"] = each
    elif name == "aten::clamp_max":
        bounds[1] = node.args[1]
    else:
        given = node.args[1:]
        bounds[: len(given)] = given
        bounds[0] = node.kwargs.get("min", bounds[0])
        bounds[1] = node.kwargs.get("max", bounds[1])
    limits = [-math.inf, math.inf]
    for place, bound in enumerate(bounds):
        if bound is None:
            continue
        constant = _constant(bound, constants)
        if constant is None:
            return None
        limits[place] = constant[place]
    return limits[0], limits[1]


def _constant(value: Argument, constants: Mapping[Node, Tensor]) -> Range | None:
    """Return the least and the largest element of a constant of integers; None of anything else."""
    while isinstance(value, Node) and op_name(value) in MOVES:
        if not isinstance(value.args[0], Node):
            return None
        value = value.args[0]
    if isinstance(value, Node) and op_name(value) in _FULL:
        value = value.args[1]
    if isinstance(value, int):
        return value, value
    if not isinstance(value, Node) or value not in constants:
        return None
    tensor = constants[value]
    if tensor.dtype.is_floating_point or not tensor.numel():
        return None
    return int(tensor.min()), int(tensor.max())


def _whole(value: float, rounded: Callable[[float], int]) -> float:
    """Round a number that is not infinite."""
    return value if math.isinf(value) else rounded(value)
