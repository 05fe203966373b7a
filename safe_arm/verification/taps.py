"""Read intermediate tensors of a TOSA graph: the same graph with more outputs."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tosa.TosaBasicBlock import TosaBasicBlock

#: Offset of the list of outputs in the table of a basic block (tosa.fbs: name, operators, tensors, inputs, outputs).
_OUTPUTS = 12


def computed(flatbuffer: bytes) -> dict[str, tuple[int, ...]]:
    """Return the tensors that the operators of a graph's main block compute, but constants, in the order computed.

    Returns:
        The shape in the delegate by name: that of the final graph's node, unless the serialiser added the tensor.
    """
    from tosa.DType import DType
    from tosa.Op import Op

    block = main_block(flatbuffer)
    shapes = {}
    for tensor in map(block.Tensors, range(block.TensorsLength())):
        if tensor.Type() != DType.SHAPE:
            dims = range(tensor.ShapeLength())
            shapes[tensor.Name()] = tuple(int(tensor.Shape(dim)) for dim in dims)
    in_order = {}
    for op in map(block.Operators, range(block.OperatorsLength())):
        if op.Op() == Op.CONST:
            continue
        for name in map(op.Outputs, range(op.OutputsLength())):
            if name in shapes:
                in_order[name.decode()] = shapes[name]
    return in_order


def with_outputs(flatbuffer: bytes, names: Sequence[str]) -> bytes:
    """Return a graph that gives the named tensors instead of its outputs and is the same otherwise.

    A flatbuffer's lists are found through offsets, so a list put at the end takes the place of another by changing one
    number; nothing else of the graph moves.
    """
    table = main_block(flatbuffer)._tab
    field = table.Pos + table.Offset(_OUTPUTS)
    buffer = bytearray(flatbuffer) + b"\0" * (-len(flatbuffer) % 4)
    vector = len(buffer)
    buffer += struct.pack("<I", len(names)) + b"\0" * 4 * len(names)
    for index, name in enumerate(names):
        slot = vector + 4 + 4 * index
        struct.pack_into("<I", buffer, slot, len(buffer) - slot)
        text = name.encode()
        buffer += struct.pack("<I", len(text)) + text + b"\0"
        buffer += b"\0" * (-len(buffer) % 4)
    struct.pack_into("<I", buffer, field, vector - field)
    return bytes(buffer)


def outputs(flatbuffer: bytes) -> list[str]:
    """Return the names of a graph's outputs, in their order."""
    block = main_block(flatbuffer)
    return [block.Outputs(i).decode() for i in range(block.OutputsLength())]


def main_block(flatbuffer: bytes) -> TosaBasicBlock:
    """Return the block of a TOSA graph that is run first."""
    return next(regions(flatbuffer))[1]


def regions(flatbuffer: bytes) -> Iterator[tuple[str, TosaBasicBlock]]:
    """Yield the name and the block of each region of a TOSA graph, the main one first; others are of control flow."""
    import tosa.TosaGraph

    graph = tosa.TosaGraph.TosaGraph.GetRootAs(flatbuffer, 0)
    for region in map(graph.Regions, range(graph.RegionsLength())):
        yield region.Name().decode(), region.Blocks(0)
