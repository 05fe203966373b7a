"""A delegate of dynamic shapes at concrete sizes: its graph and its flatbuffer with numbers in place of symbols.

Nothing here asks torch for the value of a ``SymInt``, which would settle it in the user's program.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import SymInt, Tensor
from torch.fx import GraphModule
from torch.utils._pytree import tree_map

from safe_arm.core.errors import SafeArmError
from safe_arm.core.programs import Program
from safe_arm.core.sizes import example_size
from safe_arm.verification.delegate import Delegate, Snapshot, user_inputs
from safe_arm.verification.taps import regions

if TYPE_CHECKING:
    from torch.utils._sympy.value_ranges import ValueRanges

#: The number of each symbol that sizes are made of.
Sizes = Mapping[sympy.Symbol, sympy.Integer]

#: At how many sizes a delegate is verified: the smallest, one in the middle, the largest.
TRIED = 3
#: A range that ends this many times beyond the example, or never, is tried up to ``_CAP`` times the example.
_HUGE, _CAP = 16, 4
#: So many times smaller than the user's input that of a delegate may be.
_LARGEST_STRIDE = 64
#: Where the table of a tensor keeps its shape (tosa.fbs).
_SHAPE = 6


class UnknownSizeError(SafeArmError):
    """A size of a delegate cannot be told from those of its inputs."""


def input_shapes(program: Program) -> list[torch.Size]:
    """Return the shapes of a program's user inputs, in their order; sizes may be symbols."""
    values = (node.meta.get("val") for node in user_inputs(program))
    return [value.shape for value in values if isinstance(value, Tensor)]


def symbols(program: Program) -> frozenset[sympy.Symbol]:
    """Return the symbols that the sizes of a program's user inputs are made of."""
    return frozenset(
        s
        for shape in input_shapes(program)
        for size in shape
        for s in _expression(size).free_symbols
    )


def shown(shapes: Iterable[Sequence[int]]) -> str:
    """Return what a report calls the sizes of a program's inputs, such as ``2x3x16x16``."""
    return " and ".join("x".join(map(str, shape)) for shape in shapes)


def sizes_of(program: Program, shapes: Iterable[Sequence[int]]) -> Sizes:
    """Return the symbols' numbers when a program is called with inputs of some shapes.

    Raises:
        UnknownSizeError: a program of these symbols does not take such inputs, or does not tell its symbols.
    """
    pairs = zip(input_shapes(program), shapes, strict=True)
    wanted = [
        (_expression(s), n)
        for symbolic, given in pairs
        for s, n in zip(symbolic, given, strict=True)
    ]
    sizes: dict[sympy.Symbol, sympy.Integer] = {}
    for expression, number in sorted(
        wanted, key=lambda pair: len(pair[0].free_symbols)
    ):
        left = expression.xreplace(sizes)
        for symbol in left.free_symbols if len(left.free_symbols) == 1 else ():
            known = program.range_constraints.get(symbol)
            # Where a stride made a size smaller, more than one number fits; sympy solves nothing with a floor in it.
            tried = map(
                sympy.Integer,
                range(int(known.lower) if known else 0, _LARGEST_STRIDE * (number + 1)),
            )
            sizes.update(
                islice(
                    (
                        (symbol, n)
                        for n in tried
                        if left.xreplace({symbol: n}) == number
                    ),
                    1,
                )
            )
        if expression.xreplace(sizes) != number:
            raise UnknownSizeError(f"a size of {expression} cannot be {number}")
    return sizes


def tried_sizes(program: Program) -> list[Sizes]:
    """Return the sizes to verify a program at, all symbols the smallest, in the middle, the largest."""
    shapes = input_shapes(program)
    examples = sizes_of(program, [[*map(example_size, shape)] for shape in shapes])
    ends = {
        symbol: _ends(program.range_constraints.get(symbol), int(n))
        for symbol, n in examples.items()
    }
    found = [
        {
            symbol: sympy.Integer(low + part * (high - low) // (TRIED - 1))
            for symbol, (low, high) in ends.items()
        }
        for part in range(TRIED)
    ]
    return [sizes for number, sizes in enumerate(found) if sizes not in found[:number]]


def is_dynamic(program: Program) -> bool:
    """Tell whether a size of a program's inputs is a symbol."""
    return any(
        isinstance(size, SymInt) for shape in input_shapes(program) for size in shape
    )


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
    for module in graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            node.args, node.kwargs = torch.fx.node.map_aggregate(
                (node.args, node.kwargs), lambda a: value_at(a, sizes)
            )
            if "val" in node.meta:
                node.meta["val"] = tree_map(
                    lambda value: value_at(value, sizes), node.meta["val"]
                )
    return Snapshot(graph_module, program.graph_signature, {})


def _filled(delegate: Delegate, sizes: Sizes) -> bytes:
    """Return the flatbuffer with every size a number; the shapes keep their lengths, so nothing else moves."""
    buffer = bytearray(delegate.flatbuffer)
    for number, (region, block) in enumerate(regions(delegate.flatbuffer)):
        shapes = delegate.shapes[number] if number < len(delegate.shapes) else {}
        for tensor in (block.Tensors(i) for i in range(block.TensorsLength())):
            dims = [tensor.Shape(i) for i in range(tensor.ShapeLength())]
            if -1 not in dims:
                continue
            name = tensor.Name().decode()
            # Tensors of all regions but the first bear the region's name as well.
            known = shapes.get(name.removesuffix(f"_{region}") if number else name, ())
            filled = [_number(size, sizes) for size in known]
            if [size if isinstance(size, int) else -1 for size in known] != dims:
                raise UnknownSizeError(
                    f"the size of {name} at {_spelt(sizes)} is not known"
                )
            table = tensor._tab
            struct.pack_into(
                f"<{len(filled)}i", buffer, table.Vector(table.Offset(_SHAPE)), *filled
            )
    return bytes(buffer)


def value_at(value: object, sizes: Sizes) -> Any:
    """Return a size as a number, a fake tensor with such sizes; anything else as it is."""
    if isinstance(value, SymInt):
        return _number(value, sizes)
    if isinstance(value, Tensor) and any(
        isinstance(size, SymInt) for size in value.shape
    ):
        shape, stride = (
            [_number(n, sizes) for n in of] for of in (value.shape, value.stride())
        )
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


def _ends(known: ValueRanges[sympy.Expr] | None, example: int) -> tuple[int, int]:
    """Return the smallest and the largest number to try of a symbol."""
    if known is None:
        return example, example
    low = int(known.lower)
    return low, int(known.upper) if known.upper <= _HUGE * example else max(
        _CAP * example, low
    )


def _spelt(sizes: Sizes) -> str:
    return ", ".join(f"{symbol}={number}" for symbol, number in sizes.items())
