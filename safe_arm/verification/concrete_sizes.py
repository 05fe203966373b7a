"""Put numbers in place of the symbols in a delegate of dynamic shapes: in its graph and in its flatbuffer.

This module never asks torch for the value of a ``SymInt``: that would specialise it in the user's program.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import SymInt, Tensor
from torch.utils._pytree import tree_map

from safe_arm.core.errors import SafeArmError
from safe_arm.core.island import all_nodes
from safe_arm.core.programs import Program
from safe_arm.core.sizes import example_size
from safe_arm.verification.delegate import Delegate, Snapshot, user_inputs
from safe_arm.verification.taps import regions

if TYPE_CHECKING:
    from torch.utils._sympy.value_ranges import ValueRanges

#: Number of each symbol.
Sizes = Mapping[sympy.Symbol, sympy.Integer]

#: Number of sizes that a delegate is verified at: the smallest, one in the middle, the largest.
TRIED = 3
#: A range whose end exceeds the example by more than this factor is tried up to ``_CAP`` times the example.
_HUGE = 16
_CAP = 4
#: The largest factor by which an input of a delegate may be smaller than the user's.
_LARGEST_STRIDE = 64
#: The least size that export traces as a symbol.
_TRACED = 2
#: Offset of the shape in the table of a tensor (tosa.fbs).
_SHAPE = 6


class UnknownSizeError(SafeArmError):
    """A size of a delegate cannot be derived from those of its inputs."""


def input_shapes(program: Program) -> list[torch.Size]:
    """Return the shapes of a program's user inputs, in their order; sizes may be symbols."""
    values = (node.meta.get("val") for node in user_inputs(program))
    return [value.shape for value in values if isinstance(value, Tensor)]


def symbols(program: Program) -> frozenset[sympy.Symbol]:
    """Return the symbols that the sizes of a program's user inputs are made of."""
    sizes = chain(*input_shapes(program))
    return frozenset().union(*(_expression(size).free_symbols for size in sizes))


def shown(shapes: Iterable[Sequence[int]]) -> str:
    """Return the sizes of a program's inputs as a report shows them, such as ``2x3x16x16``."""
    return " and ".join("x".join(map(str, shape)) for shape in shapes)


def sizes_of(program: Program, shapes: Iterable[Sequence[int]]) -> Sizes:
    """Return the symbols' numbers when a program is called with inputs of some shapes.

    Raises:
        UnknownSizeError: the program does not accept such inputs, or its symbols cannot be derived from them.
    """
    wanted: list[tuple[sympy.Expr, int]] = []
    for symbolic, concrete in zip(input_shapes(program), shapes, strict=True):
        wanted += zip(map(_expression, symbolic), concrete, strict=True)
    wanted.sort(key=lambda pair: len(pair[0].free_symbols))
    sizes: dict[sympy.Symbol, sympy.Integer] = {}
    for expression, number in wanted:
        unsolved = expression.xreplace(sizes)
        if len(unsolved.free_symbols) == 1:
            (symbol,) = unsolved.free_symbols
            size = _solved(unsolved, number, program.range_constraints.get(symbol))
            if size is not None:
                sizes[symbol] = size
        if expression.xreplace(sizes) != number:
            raise UnknownSizeError(f"a size of {expression} cannot be {number}")
    return sizes


def _solved(
    expression: sympy.Expr, number: int, allowed: ValueRanges[sympy.Expr] | None
) -> sympy.Integer | None:
    """Return the smallest number for the only symbol of an expression that gives it some value; None if none does.

    Where a stride made a size smaller, more than one number fits. Sympy solves nothing that has a floor in it. A range
    from 2 on may be one from 1 or 0 that export has cut, as it does not trace those: they are tried last.
    """
    (symbol,) = expression.free_symbols
    low = 0 if allowed is None else int(allowed.lower)
    sizes = [*range(low, _LARGEST_STRIDE * (number + 1))]
    if low == _TRACED:
        sizes += range(low)
    for size in map(sympy.Integer, sizes):
        if expression.xreplace({symbol: size}) == number:
            return size
    return None


def tried_sizes(program: Program) -> list[Sizes]:
    """Return the sizes to verify a program at: all symbols at the smallest, at the middle and at the largest."""
    shapes = input_shapes(program)
    examples = sizes_of(program, [[*map(example_size, shape)] for shape in shapes])
    tried: list[Sizes] = []
    for part in range(TRIED):
        sizes: dict[sympy.Symbol, sympy.Integer] = {}
        for symbol, example in examples.items():
            low = high = int(example)
            allowed = program.range_constraints.get(symbol)
            if allowed is not None:
                low = int(allowed.lower)
                high = max(_CAP * int(example), low)
                if allowed.upper <= _HUGE * int(example):
                    high = int(allowed.upper)
            sizes[symbol] = sympy.Integer(low + part * (high - low) // (TRIED - 1))
        if sizes not in tried:
            tried.append(sizes)
    return tried


def is_dynamic(program: Program) -> bool:
    """Tell whether a size of a program's inputs is a symbol."""
    return any(map(_has_symbol, input_shapes(program)))


def _has_symbol(sizes: Sequence[object]) -> bool:
    return any(isinstance(size, SymInt) for size in sizes)


def at(delegate: Delegate, sizes: Sizes) -> Delegate:
    """Return a delegate of dynamic shapes as it is at some sizes, static throughout; one that is static as it is.

    Raises:
        UnknownSizeError: a size of its flatbuffer is not known.
    """
    if not is_dynamic(delegate.program):
        return delegate
    return replace(
        delegate,
        program=static_at(delegate.program, sizes),
        flatbuffer=_filled(delegate, sizes),
    )


def static_at(program: Program, sizes: Sizes) -> Snapshot:
    """Return a program of dynamic shapes as it is at some sizes, static throughout.

    Raises:
        UnknownSizeError: a size of it is not known.
    """
    graph_module = copy.deepcopy(program.graph_module)
    static = partial(value_at, sizes=sizes)
    for node in all_nodes(graph_module):
        arguments = (node.args, node.kwargs)
        node.args, node.kwargs = torch.fx.node.map_aggregate(arguments, static)
        if "val" in node.meta:
            node.meta["val"] = tree_map(static, node.meta["val"])
    return Snapshot(graph_module, program.graph_signature, {})


def _filled(delegate: Delegate, sizes: Sizes) -> bytes:
    """Return the flatbuffer with every size a number; the shapes keep their lengths, so nothing else moves."""
    buffer = bytearray(delegate.flatbuffer)
    for number, (region, block) in enumerate(regions(delegate.flatbuffer)):
        shapes = delegate.shapes[number] if number < len(delegate.shapes) else {}
        for tensor in map(block.Tensors, range(block.TensorsLength())):
            dims = [tensor.Shape(i) for i in range(tensor.ShapeLength())]
            if -1 not in dims:
                continue
            name = tensor.Name().decode()
            # Tensors of all regions but the first bear the region's name as well.
            key = name.removesuffix(f"_{region}") if number else name
            shape = shapes.get(key, ())
            filled = [_number(size, sizes) for size in shape]
            if [size if isinstance(size, int) else -1 for size in shape] != dims:
                raise UnknownSizeError(
                    f"the size of {name} at {_spelt(sizes)} is not known"
                )
            table = tensor._tab
            place = table.Vector(table.Offset(_SHAPE))
            struct.pack_into(f"<{len(filled)}i", buffer, place, *filled)
    return bytes(buffer)


def value_at(value: object, sizes: Sizes) -> Any:
    """Return a size as a number, a fake tensor with such sizes; anything else as it is."""
    if isinstance(value, SymInt):
        return _number(value, sizes)
    if isinstance(value, Tensor) and _has_symbol(value.shape):
        shape = [_number(size, sizes) for size in value.shape]
        stride = [_number(size, sizes) for size in value.stride()]
        return torch.empty_strided(shape, stride, dtype=value.dtype, device="meta")
    return value


def _number(size: int | SymInt | sympy.Expr, sizes: Sizes) -> int:
    number = _expression(size).xreplace(sizes)
    if not number.is_Integer or number < 0:
        raise UnknownSizeError(
            f"the size {_expression(size)} at {_spelt(sizes)} is not known"
        )
    return int(number)


def _expression(size: int | SymInt | sympy.Expr) -> sympy.Expr:
    return size.node.expr if isinstance(size, SymInt) else sympy.sympify(size)


def _spelt(sizes: Sizes) -> str:
    return ", ".join(f"{symbol}={number}" for symbol, number in sizes.items())
