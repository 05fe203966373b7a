"""Read intermediate tensors of a TOSA graph: the same graph with more outputs."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tosa.TosaBasicBlock import TosaBasicBlock

#: Where the table of a basic block keeps its list of outputs (tosa.fbs: name, operators, tensors, inputs, outputs).
_OUTPUTS = 12


@dataclass(frozen=True)
class Tensor:
    """A tensor that the main block of a TOSA graph computes.

    Attributes:
        name: the name of the final graph's node, unless the serialiser added the tensor.
        shape: its shape in the delegate.
        type: the number of its TOSA type.
    """

    name: str
    shape: tuple[int, ...]
    type: int


def computed(flatbuffer: bytes) -> tuple[Tensor, ...]:
    """Return what the operators of a graph's main block compute, constants left out, in the order computed."""
    from tosa.DType import DType
    from tosa.Op import Op

    block = main_block(flatbuffer)
    tensors = {}
    for i in range(block.TensorsLength()):
        tensor = block.Tensors(i)
        shape = tuple(int(tensor.Shape(d)) for d in range(tensor.ShapeLength()))
        tensors[tensor.Name().decode()] = Tensor(tensor.Name().decode(), shape, tensor.Type())
    operators = (block.Operators(i) for i in range(block.OperatorsLength()))
    names = (op.Outputs(i).decode() for op in operators if op.Op() != Op.CONST for i in range(op.OutputsLength()))
    return tuple(tensors[name] for name in names if name in tensors and tensors[name].type != DType.SHAPE)


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


def main_block(flatbuffer: bytes) -> TosaBasicBlock:
    """Return the block of a TOSA graph that is run first."""
    return next(regions(flatbuffer))[1]


def regions(flatbuffer: bytes) -> Iterator[tuple[str, TosaBasicBlock]]:
    """Yield the name and the block of each region of a TOSA graph, the main one first; others are of control flow."""
    import tosa.TosaGraph

    graph = tosa.TosaGraph.TosaGraph.GetRootAs(flatbuffer, 0)
    for region in map(graph.Regions, range(graph.RegionsLength())):
        yield region.Name().decode(), region.Blocks(0)
