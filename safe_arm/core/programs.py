"""The parameters, buffers, constants and inputs that an exported program's placeholders stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.export.graph_signature import (
    ConstantArgument,
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
    """An ``ExportedProgram``, or the part of one that tells what its placeholders stand for."""

    @property
    def graph_module(self) -> GraphModule:
        """The main graph, its parameters, buffers and constants lifted to placeholders, and those of control flow."""

    @property
    def graph(self) -> Graph:
        """The main graph."""

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """The kind and target of each placeholder and output."""

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


def written_placeholders(program: Program) -> frozenset[str]:
    """Return the names of the placeholders that hold buffers which a program writes."""
    mutated = set(program.graph_signature.buffers_to_mutate.values())
    names = held_names(program)
    return frozenset(name for name, held in names.items() if held in mutated)


def constants(program: Program, state: Mapping[str, Tensor]) -> dict[Node, Tensor]:
    """Return, by placeholder, the parameters, lifted constants and those buffers that a program does not change.

    Args:
        program: an exported program.
        state: its parameters, buffers and constants by name.
    """
    names = held_names(program)
    mutated = set(program.graph_signature.buffers_to_mutate.values())
    tensors = {}
    for node in program.graph.find_nodes(op="placeholder"):
        name = names.get(node.name)
        if name is None or name in mutated:
            continue
        value = state.get(name)
        if isinstance(value, Tensor):
            tensors[node] = value
    return tensors


def placeholder_values(
    program: Program, state: Mapping[str, Tensor], inputs: Sequence[Tensor]
) -> dict[Node, Any]:
    """Return the values of a program's placeholders when it is called, in their order.

    Args:
        program: an exported program, lowered or not.
        state: its parameters, buffers and constants by name.
        inputs: its user inputs that are tensors, in its order. None, a number or a string is what the program was
            exported with. A token, which orders operators with effects, is an empty tensor.
    """
    names = held_names(program)
    user_inputs = iter(inputs)
    specs = program.graph_signature.input_specs
    kinds = {spec.arg.name: spec.kind for spec in specs}
    fixed = {}
    for spec in specs:
        if isinstance(spec.arg, ConstantArgument):
            fixed[spec.arg.name] = spec.arg.value
    values: dict[Node, Any] = {}
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in fixed:
            values[node] = fixed[node.name]
        elif kinds.get(node.name) == InputKind.TOKEN:
            values[node] = torch.empty(0)
        elif node.name in names:
            values[node] = state[names[node.name]].detach()
        else:
            values[node] = next(user_inputs)
    return values


def user_outputs(program: Program, results: Sequence[Tensor]) -> list[Tensor]:
    """Return the results of a graph that the program returns to its caller, without the state that it writes."""
    kinds = []
    for spec in program.graph_signature.output_specs:
        if isinstance(spec.arg, (TensorArgument, TokenArgument)):
            kinds.append(spec.kind)
    outputs = []
    for kind, result in zip(kinds, results, strict=True):
        if kind == OutputKind.USER_OUTPUT:
            outputs.append(result)
    return outputs


def are_user_tensors(program: Program) -> list[bool]:
    """Return for each result that a program returns to its caller whether it is a tensor; others are fixed."""
    are_tensors = []
    for spec in program.graph_signature.output_specs:
        if spec.kind == OutputKind.USER_OUTPUT:
            are_tensors.append(isinstance(spec.arg, TensorArgument))
    return are_tensors
