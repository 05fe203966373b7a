"""What an exported program's placeholders stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    OutputKind,
    TensorArgument,
    TokenArgument,
)
from torch.fx import Graph, GraphModule, Node

if TYPE_CHECKING:
    import sympy
    from torch.utils._sympy.value_ranges import ValueRanges


class Program(Protocol):
    """An ``ExportedProgram``, or as much of one as tells what its placeholders stand for."""

    @property
    def graph_module(self) -> GraphModule:
        """The main graph, its parameters, buffers and constants lifted to placeholders, and those of control flow."""

    @property
    def graph(self) -> Graph:
        """The main graph."""

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What each placeholder and output is."""

    @property
    def range_constraints(self) -> Mapping[sympy.Symbol, ValueRanges[sympy.Expr]]:
        """The range of each symbol that a size is made of."""


def held_names(program: Program) -> dict[str, str]:
    """Return, by name of the placeholder, the name of the parameter, buffer or lifted constant it holds."""
    signature = program.graph_signature
    return {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }


def constant_placeholders(program: Program) -> frozenset[str]:
    """Return the names of the placeholders that hold parameters, buffers or lifted constants."""
    return frozenset(held_names(program))


def constants(program: Program, state: Mapping[str, Tensor]) -> dict[Node, Tensor]:
    """Return, by placeholder, the parameters, lifted constants and those buffers that a program does not change.

    Args:
        program: an exported program.
        state: its parameters, buffers and constants by name.
    """
    held, changing = (
        held_names(program),
        set(program.graph_signature.buffers_to_mutate.values()),
    )
    nodes = [
        n
        for n in program.graph.find_nodes(op="placeholder")
        if held.get(n.name, n) not in changing
    ]
    found = {node: state.get(held[node.name]) for node in nodes if node.name in held}
    return {node: value for node, value in found.items() if isinstance(value, Tensor)}


def placeholder_values(
    program: Program, state: Mapping[str, Tensor], inputs: Sequence[Tensor]
) -> dict[Node, Tensor]:
    """Return what a program's placeholders hold when it is called, in their order.

    Args:
        program: an exported program, lowered or not.
        state: its parameters, buffers and constants by name.
        inputs: its user inputs, in its order. What orders operators with effects, a token, is an empty tensor.
    """
    held, user = held_names(program), iter(inputs)
    tokens = {
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.TOKEN
    }

    def value(name: str) -> Tensor:
        if name in tokens:
            return torch.empty(0)
        return state[held[name]].detach() if name in held else next(user)

    return {
        node: value(node.name) for node in program.graph.find_nodes(op="placeholder")
    }


def user_outputs(program: Program, results: Sequence[Tensor]) -> list[Tensor]:
    """Return what a program gives its caller, of all that its graph returns: not what it writes into its state."""
    specs = (
        spec
        for spec in program.graph_signature.output_specs
        if isinstance(spec.arg, (TensorArgument, TokenArgument))
    )
    return [
        each
        for spec, each in zip(specs, results, strict=True)
        if spec.kind == OutputKind.USER_OUTPUT
    ]
