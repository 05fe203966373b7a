"""Decompose what was kept whole for the accelerator and then not delegated."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from functools import partial

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ArgumentSpec,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from safe_arm._compat.upstream import EdgeCompileConfig, exir_ops, to_edge
from safe_arm.core.attributes import attribute
from safe_arm.core.island import call_functions
from safe_arm.core.origins import DECOMPOSED_FROM
from safe_arm.core.programs import held_names

#: Where a node comes from; by the last two XNNPACK knows a linear that was decomposed.
_PROVENANCE = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")


def decompose_leftovers(
    program: ExportedProgram,
    ops: Collection[torch._ops.OpOverload],
    *,
    but: Callable[[Node], bool] = lambda node: False,
) -> int:
    """Replace operators that no CPU kernel computes by what ExecuTorch itself decomposes them into, in place.

    The partitioner asks for operators such as ``aten.linear`` to be kept whole before it knows whether it can delegate
    them; without this ExecuTorch refuses the program ("was not decomposed or delegated", executorch#12270). Sizes that
    are symbols stay symbols: each operator is decomposed on its own fake values, under their own shape environment.

    Args:
        program: an edge program after its delegates were cut out.
        ops: the ATen operators the partitioner asked to keep.
        but: tells those that stay whole all the same.

    Returns:
        How many operators were replaced.
    """
    leftovers = [
        node
        for node in call_functions(program.graph_module)
        if getattr(node.target, "_op", None) in ops
    ]
    leftovers = [node for node in leftovers if not but(node)]
    replaced = sum(_decompose(node, program) for node in leftovers)
    if replaced:
        for module in program.graph_module.modules():
            if isinstance(module, GraphModule):
                module.recompile()
    return replaced


def _decompose(node: Node, program: ExportedProgram) -> bool:
    """Splice in the edge graph of a program that is this operator alone; False if it stays whole there too."""
    results = [node] if isinstance(node.meta["val"], Tensor) else list(node.users)
    if not results or any(
        result is not node and result.target is not operator.getitem
        for result in results
    ):
        return False
    alone = _alone(node, results, program)
    part = to_edge(
        alone, compile_config=EdgeCompileConfig(_check_ir_validity=False)
    ).exported_program()
    if any(inner.target is node.target for inner in part.graph.nodes):
        return False
    if any(
        value.numel() != 1
        for value in map(partial(_constant, part), part.graph.nodes)
        if value is not None
    ):
        return False  # One number is what ``full`` can make.
    for result, replacement in zip(results, _spliced(part, node), strict=True):
        result.replace_all_uses_with(replacement)
        if result is not node:
            node.graph.erase_node(result)
    node.graph.erase_node(node)
    return True


def _alone(
    node: Node, results: list[Node], program: ExportedProgram
) -> ExportedProgram:
    """Return an ATen program that is one operator, its inputs those of the node, its outputs some results of it.

    One more input has the value of a result. Nothing reads it: passes look for the fake mode among the tensors that
    come in, and an operator such as ``eye`` has a size coming in and no tensor.
    """
    graph = Graph()
    new: dict[Node, Node] = {}
    for source in (*node.all_input_nodes, results[0]):
        new[source] = graph.placeholder(source.name)
        new[source].meta["val"] = source.meta["val"]
    inputs = list(new.values())
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), new.__getitem__)
    new[node] = graph.call_function(node.target._op, args, kwargs)  # type: ignore[union-attr]
    for result in results:
        if result is not node:
            new[result] = graph.node_copy(result, new.__getitem__)
        new[result].meta["val"] = result.meta["val"]
    new[node].meta["val"] = node.meta["val"]
    outputs = [new[result] for result in results]
    graph.output(tuple(outputs))
    in_spec, out_spec = (
        pytree.tree_structure((tuple(inputs), {})),
        pytree.tree_structure(tuple(outputs)),
    )
    signature = ExportGraphSignature(
        [InputSpec(InputKind.USER_INPUT, _argument(value), None) for value in inputs],
        [
            OutputSpec(OutputKind.USER_OUTPUT, _argument(value), None)
            for value in outputs
        ],
    )
    return ExportedProgram(
        root=torch.nn.Module(),
        graph=graph,
        graph_signature=signature,
        state_dict={},
        range_constraints=dict(program.range_constraints),
        module_call_graph=[
            ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec))
        ],
    )


def _argument(node: Node) -> ArgumentSpec:
    return (TensorArgument if isinstance(node.meta["val"], Tensor) else SymIntArgument)(
        name=node.name
    )


def _spliced(part: ExportedProgram, node: Node) -> list[Node]:
    """Copy a part's operators in front of a node and return its outputs; its lifted numbers become ``full``."""
    inputs = dict(
        zip(
            part.graph_signature.user_inputs, (*node.all_input_nodes, node), strict=True
        )
    )
    copies: dict[Node, Node] = {}
    with node.graph.inserting_before(node):
        for inner in part.graph.nodes:
            if inner.op == "output":
                return [copies[result] for result in inner.args[0]]
            if inner.name in inputs:
                copies[inner] = inputs[inner.name]
                continue
            constant = _constant(part, inner)
            if constant is None:
                copies[inner] = node.graph.node_copy(inner, copies.__getitem__)
            else:
                arguments = list(constant.shape), constant.flatten()[0].item()
                full = exir_ops.edge.aten.full.default
                copies[inner] = node.graph.call_function(
                    full, arguments, {"dtype": constant.dtype}
                )
                copies[inner].meta["val"] = inner.meta["val"]
            copies[inner].meta[DECOMPOSED_FROM] = node.name
            copies[inner].meta |= {
                key: node.meta[key] for key in _PROVENANCE if key in node.meta
            }
    raise AssertionError("a graph without an output")


def _constant(part: ExportedProgram, inner: Node) -> Tensor | None:
    """Return the tensor that a node of a part holds, None for a node that holds none."""
    if inner.op == "get_attr":
        return attribute(part.graph_module, inner.target)
    return {**part.state_dict, **part.constants}.get(
        held_names(part).get(inner.name, "")
    )
