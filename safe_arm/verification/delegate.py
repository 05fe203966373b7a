"""Data of a lowered delegate: the flatbuffer, the program it was made from, and the origins of its nodes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, GraphModule, Node

from safe_arm.core.layouts import seen
from safe_arm.core.programs import Program

if TYPE_CHECKING:
    import sympy
    from torch.utils._sympy.value_ranges import ValueRanges

    from safe_arm.verification.known_shapes import Shapes

#: Runs a flatbuffer on inputs in its own order, shapes and dtypes.
Runner = Callable[[bytes, list[Tensor]], list[Tensor]]


@dataclass(frozen=True)
class Snapshot:
    """A delegate's exported program as it is now; passes change the program itself."""

    graph_module: GraphModule
    graph_signature: ExportGraphSignature
    range_constraints: Mapping[sympy.Symbol, ValueRanges[sympy.Expr]]

    @classmethod
    def of(cls, program: Program) -> Snapshot:
        """Copy a program's graph."""
        signature = copy.deepcopy(program.graph_signature)
        graph_module = copy.deepcopy(program.graph_module)
        return cls(graph_module, signature, dict(program.range_constraints))

    @property
    def graph(self) -> Graph:
        """The main graph."""
        return self.graph_module.graph


@dataclass(frozen=True)
class Delegate:
    """One lowered delegate.

    Attributes:
        flatbuffer: the TOSA graph, as shipped or as handed to the target's compiler.
        program: the exported program it was made from, or its snapshot, as it was before any pass.
        state: its parameters, buffers and constants by name.
        origins: for nodes of the final graph, the name of the node in the user's graph it comes from.
        float_borders: whether the profile lets floats cross the border of a delegate.
        shapes: for each region of the flatbuffer, the shape of each node of the final graph; needed if it is dynamic.
        accepted: codes that the user lets any operator be off, whatever its row of the tolerance table.
    """

    flatbuffer: bytes
    program: Program
    state: Mapping[str, Tensor]
    origins: Mapping[str, str]
    float_borders: bool
    shapes: Shapes | Sequence[Mapping[str, torch.Size]] = ()
    accepted: int = 0

    @property
    def outputs(self) -> tuple[Node, ...]:
        """The nodes whose values leave the delegate."""
        return tuple(self.program.graph.output_node().args[0])  # type: ignore[arg-type]


def run(delegate: Delegate, inputs: Sequence[Tensor], runner: Runner) -> list[Tensor]:
    """Run a delegate and give its outputs the shapes, dtypes and memory layout its graph promises.

    Args:
        delegate: the delegate.
        inputs: its user inputs, in the order of its graph.
        runner: runs its flatbuffer.
    """
    taken = arranged(delegate.flatbuffer, delegate.program, inputs)
    return as_promised(runner(delegate.flatbuffer, taken), delegate.outputs)


def as_promised(outputs: Iterable[Tensor], nodes: Iterable[Node]) -> list[Tensor]:
    """Return outputs in the shapes, dtypes and memory layout of the nodes' values."""
    promised = []
    for output, node in zip(outputs, nodes, strict=True):
        value = node.meta["val"]
        output = output.to(value.dtype)
        promised.append(seen(output, value.shape, value.dim_order()))
    return promised


def user_inputs(program: Program) -> list[Node]:
    """Return the placeholders of a program's user inputs, in their order."""
    names = set(program.graph_signature.user_inputs)
    return [
        node
        for node in program.graph.find_nodes(op="placeholder")
        if node.name in names
    ]


def arranged(
    flatbuffer: bytes | None, program: Program, inputs: Sequence[Tensor]
) -> list[Tensor]:
    """Return the inputs a flatbuffer still has, each as it lies in memory.

    Args:
        flatbuffer: the TOSA graph made of the program; None if only its compiled form is at hand.
        program: a delegate's exported program.
        inputs: its user inputs, in its order.
    """
    values = {n.name: n.meta["val"] for n in program.graph.find_nodes(op="placeholder")}
    names = map(str, program.graph_signature.user_inputs)
    by_name = dict(zip(names, inputs, strict=True))
    live = list(by_name)
    if flatbuffer is not None:
        from safe_arm.verification.taps import main_block

        block = main_block(flatbuffer)
        taken = {block.Inputs(i).decode() for i in range(block.InputsLength())}
        if len(taken) < len(live):
            # Lowering removes an input that only a ``full_like`` reads.
            live = [name for name in live if name in taken]
    arranged_inputs = []
    for name in live:
        # A delegate reads and writes memory, so a tensor goes over in its dim order.
        tensor = by_name[name].to(values[name].dtype)
        order = values[name].dim_order()
        arranged_inputs.append(tensor.permute(order).contiguous())
    return arranged_inputs
