"""Sums of squares that are exact in 32 bits, and what is near one: a multiple of it, more a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node
from torchao.quantization.pt2e.quantizer import DerivedQuantizationSpec, EdgeOrNode

from safe_arm._compat.annotations import Q_ANNOTATION_KEY, annotation_of
from safe_arm.core.island import op_name
from safe_arm.core.operators import IN_ORDER, RESHAPES
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_call,
    is_float32,
    is_read_once,
    lower_bound,
    replace_node,
    squared,
    static_sizes,
    stored_number,
)
from safe_arm.quantizer.precision.added_products import spec_of_products
from safe_arm.quantizer.precision.exact_products import (
    exact_spec,
    give_one_spec,
    is_exact_sum,
    is_int8,
)

_ATEN = torch.ops.aten
_POWER = _ATEN.pow.Tensor_Scalar
_PRODUCT = _ATEN.mul.Tensor
_SUM = _ATEN.sum.dim_IntList
_ADDITION = _ATEN.add.Tensor
_CLAMP = _ATEN.clamp.default
_MAXIMUM = _ATEN.maximum.default
_ROOT = _ATEN.rsqrt.default
#: The least square of the float graph: the inverse root of 0 is infinite.
_LEAST = 1e-30
#: Squares that are added one to the other, at most.
_MOST_TERMS = 16


@dataclass(frozen=True)
class NearSum:
    """A value that is ``factor * total + offset``, and at least ``least``.

    Attributes:
        total: a sum of squares.
        factor: a positive number.
        offset: a number that is not negative.
        least: another one.
    """

    total: Node
    factor: float = 1.0
    offset: float = 0.0
    least: float = 0.0


def write_products(value: object) -> None:
    """Write the squares of which a value is a sum, a mean or a part of one as products, which can stay exact.

    Stock gives a power a table, and reshapes the squares of a mean, each rounded.

    Args:
        value: a value of a float graph that stock's passes have transformed; changed in place. What is read besides
            keeps its operators.
    """
    if not is_read_once(value):
        return
    if value.target is _POWER:
        if value.args[1] == 2:
            value.target = _PRODUCT
            value.args = (value.args[0], value.args[0])
    elif value.target is _SUM:
        source = value.args[0]
        write_products(source)
        if isinstance(source, Node) and op_name(source) in RESHAPES:
            _square_reshaped(source)
    elif (
        value.target in (_PRODUCT, _ADDITION, _CLAMP, _MAXIMUM)
        or op_name(value) in IN_ORDER
    ):
        for source in value.all_input_nodes:
            write_products(source)


def _square_reshaped(reshape: Node) -> None:
    """Square what is reshaped instead of reshaping what is squared."""
    square: Any = reshape.args[0]
    source = squared(square)
    if source is None or len(reshape.users) != 1 or len(square.users) != 1:
        return
    target: Any = reshape.target
    moved = Writer(reshape)(target, source, *reshape.args[1:])
    reshape.target = _PRODUCT
    reshape.args = (moved, moved)


def near_sum(value: object) -> NearSum | None:
    """Return the sum of squares that a value is computed of, and how; None if it is not.

    Args:
        value: a value of a float graph that stock's passes have transformed.
    """
    if not is_float32(value):
        return None
    if is_exact_sum(value) or squares_added(value):
        return NearSum(value)
    source = value.args[0] if value.args else None
    if op_name(value) in IN_ORDER and static_sizes(value) is not None:
        return near_sum(source)
    if is_call(value, _CLAMP):
        inner, low = near_sum(source), lower_bound(value)
        if inner is None or low is None:
            return None
        return replace(inner, least=max(inner.least, low))
    if value.kwargs or value.target not in (_PRODUCT, _ADDITION, _MAXIMUM):
        return None
    number = stored_number(value.args[1])
    if number is None:
        return None
    inner = near_sum(source)
    if inner is None:
        return None
    if value.target is _PRODUCT:
        return _multiple(inner, number)
    if value.target is _MAXIMUM:
        return replace(inner, least=max(inner.least, number))
    return _raised(inner, number)


def offset_of_square(value: object) -> float | None:
    """Return the number that is added to the one square that a value is computed of; None if it is not of one."""
    factor, offset = 1.0, 0.0
    while isinstance(value, Node):
        is_power = is_call(value, _POWER) and value.args[1] == 2
        if is_power or squared(value) is not None:
            return offset / factor
        if value.target in (_PRODUCT, _ADDITION):
            number = stored_number(value.args[1])
            if not number:
                return None
            if value.target is _PRODUCT:
                factor *= number
            else:
                offset += factor * number
        elif value.target not in (_CLAMP, _MAXIMUM) and op_name(value) not in IN_ORDER:
            return None
        value = value.args[0]
    return None


def _multiple(inner: NearSum, number: float) -> NearSum | None:
    if number <= 0:
        return None
    factor, offset = inner.factor * number, inner.offset * number
    return NearSum(inner.total, factor, offset, inner.least * number)


def _raised(inner: NearSum, number: float) -> NearSum | None:
    if number < 0:
        return None
    return replace(inner, offset=inner.offset + number, least=inner.least + number)


def squares_added(value: object) -> list[Node]:
    """Return the squares that are added one to the other, or the one, read by nothing else; none of anything else."""
    squares: list[Node] = []
    waiting = [value]
    while waiting:
        term = waiting.pop()
        if not is_read_once(term):
            return []
        if is_call(term, _ADDITION) and not term.kwargs:
            waiting += term.args[:2]
        elif squared(term) is not None:
            squares.append(term)
        else:
            return []
    if len(squares) > _MOST_TERMS:
        return []
    return squares


def _additions(total: Node) -> list[Node]:
    """Return the additions of squares that are added, the last one first."""
    additions = []
    waiting = [total]
    while waiting:
        term = waiting.pop()
        if term.target is _ADDITION:
            additions.append(term)
            waiting += term.all_input_nodes
    return additions


def positive_sum(write: Writer, form: NearSum) -> Node | None:
    """Write the positive value of which the root is taken, over its factor; None for what has two bounds."""
    if squares_added(form.total):
        # Each addition has the scale of the largest square, which has to be observed before.
        for addition in reversed(_additions(form.total)[1:]):
            form.total.prepend(addition)
    offset, least = form.offset / form.factor, form.least / form.factor
    if offset == 0:
        bound = number_for(write, form.total, max(least, _LEAST), "least")
        return write(_MAXIMUM, form.total, bound)
    if least > offset or offset < _LEAST:
        return None
    number = number_for(write, form.total, offset, "offset")
    return write(_ADDITION, form.total, number)


@dataclass(frozen=True)
class Unit:
    """A sum of squares over its factor, its rough inverse root, and what is near 1.

    Attributes:
        factor: the factor.
        rough: the inverse root, r, of the sum, y.
        between: ``y * r``.
        unit: ``y * r * r``.
    """

    factor: float
    rough: Node
    between: Node
    unit: Node


def write_unit(write: Writer, value: Node) -> Unit | None:
    """Write what is computed of a sum of squares on the way to a function of it in two steps; None for any other.

    Args:
        write: writes in the place of the function.
        value: what the function reads.
    """
    write_products(value)
    form = near_sum(value)
    if form is None:
        return None
    argument = positive_sum(write, form)
    if argument is None:
        return None
    rough = write(_ROOT, argument)
    between = write(_PRODUCT, argument, rough)
    unit = write(_PRODUCT, between, rough)
    return Unit(form.factor, rough, between, unit)


def replace_in_shape(write: Writer, node: Node, fine: Node) -> None:
    """Let all that reads a node read another in its shape, and erase it."""
    shape = static_sizes(node)
    if shape != static_sizes(fine):
        fine = write(_ATEN.reshape.default, fine, shape)
    replace_node(node, fine)


def number_for(write: Writer, node: Node, number: float, name: str) -> Node:
    """Store a number as a tensor that is broadcast to a value."""
    value = node.meta["val"]
    return write.constant(torch.full((1,) * value.dim(), number), name)


def keep_argument(argument: Node) -> None:
    """Keep a positive sum in 32 bits, if it is one of values of 8 bits: what it is the larger of, or the sum of.

    Args:
        argument: as ``positive_sum`` writes it.
    """
    exact = _keep_total(argument, argument.all_input_nodes[0])
    if exact is None:
        return
    give_one_spec(argument, exact)


def _keep_total(reader: Node, total: Node) -> DerivedQuantizationSpec | None:
    """Keep a sum of squares in 32 bits for a node that reads it, and return the specification that it has there.

    Args:
        reader: reads the sum in 8 bits.
        total: the sum. Of squares that are added one to the other, all is annotated.

    Returns:
        DerivedQuantizationSpec | None: None if it is not of 8 bits.
    """
    if not is_int8(total, reader):
        return None
    squares = squares_added(total)
    if not squares:
        return exact_spec([(total.args[0], total)])  # type: ignore[list-item]
    return _keep_added(total, squares)


def _keep_added(total: Node, squares: Sequence[Node]) -> DerivedQuantizationSpec | None:
    for square in squares:
        if Q_ANNOTATION_KEY not in square.meta or not is_int8(square.args[0], square):
            return None
    factors: list[list[EdgeOrNode]] = []
    for square in squares:
        place = (square.args[0], square)
        factors.append([place, place])
        annotation_of(square).output_qspec = exact_spec([place, place])
    spec = spec_of_products(factors, [])
    for addition in _additions(total):
        give_one_spec(addition, spec)
    return spec
