"""Decompose operators that were kept whole for the accelerator, but not delegated."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable

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
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from safe_arm._compat.upstream import EdgeCompileConfig, exir_ops, to_edge
from safe_arm.core.attributes import attribute
from safe_arm.core.island import call_functions, graph_modules
from safe_arm.core.programs import held_names

#: Metadata that tells where a node comes from; by the last two XNNPACK recognises a linear that was decomposed.
_PROVENANCE = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")


def decompose_leftovers(
    program: ExportedProgram,
    ops: Collection[torch._ops.OpOverload],
    *,
    but: Callable[[Node], bool] = lambda node: False,
) -> int:
    """Replace operators that no CPU kernel computes by the ones ExecuTorch decomposes them into, in place.

    The partitioner asks for operators such as ``aten.linear`` to be kept whole before it knows whether it can delegate
    them; without this ExecuTorch refuses the program ("was not decomposed or delegated", executorch#12270). Sizes that
    are symbols stay symbols: each operator is decomposed on its own fake values, under their own shape environment.

    Args:
        program: an edge program after its delegates were cut out.
        ops: the ATen operators the partitioner asked to keep.
        but: tells which of them stay whole all the same.

    Returns:
        The number of operators replaced.
    """
    leftovers = []
    for node in call_functions(program.graph_module):
        if getattr(node.target, "_op", None) in ops and not but(node):
            leftovers.append(node)
    replaced = sum(_decompose(node, program) for node in leftovers)
    if replaced:
        for module in graph_modules(program.graph_module):
            module.recompile()
    return replaced


def not_left(
    program: ExportedProgram, ops: Iterable[torch._ops.OpOverload]
) -> list[torch._ops.OpOverload]:
    """Return the operators of which a program has none.

    A registered operator that was demoted, such as grid sampling for VGF, may have no decomposition.

    Args:
        program: an edge program after its delegates were cut out.
        ops: ATen or edge operators.
    """
    left: set[object] = set()
    for node in call_functions(program.graph_module):
        left |= {node.target, getattr(node.target, "_op", None)}
    return [op for op in ops if op not in left]


def _decompose(node: Node, program: ExportedProgram) -> bool:
    """Splice in the edge graph of a program that is this operator alone; False if it stays whole there too."""
    results = [node]
    if not isinstance(node.meta["val"], Tensor):
        results = list(node.users)
        items = [user for user in results if user.target is operator.getitem]
        if not items or items != results:
            return False
    config = EdgeCompileConfig(_check_ir_validity=False)
    edge = to_edge(_alone(node, results, program), compile_config=config)
    part = edge.exported_program()
    for inner in part.graph.nodes:
        if inner.target is node.target:
            return False
        constant = _constant(part, inner)
        if constant is not None and constant.numel() != 1:
            return False  # ``full`` makes a tensor of one number only.
    for result, replacement in zip(results, _spliced(part, node), strict=True):
        result.replace_all_uses_with(replacement)
        if result is not node:
            node.graph.erase_node(result)
    node.graph.erase_node(node)
    return True


def _alone(
    node: Node,
    results: list[Node],
    program: ExportedProgram,
) -> ExportedProgram:
    """Return an ATen program that is one operator, its inputs those of the node, its outputs some results of it.

    One more input has the value of a result, and nothing reads it: passes look for the fake mode among the input
    tensors, and the only input of an operator such as ``eye`` is a size.
    """
    graph = Graph()
    copies: dict[Node, Node] = {}
    for source in (*node.all_input_nodes, results[0]):
        copies[source] = graph.placeholder(source.name)
        copies[source].meta["val"] = source.meta["val"]
    inputs = tuple(copies.values())
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), copies.__getitem__)
    copies[node] = graph.call_function(node.target._op, args, kwargs)  # type: ignore[union-attr]
    for result in results:
        if result is not node:
            copies[result] = graph.node_copy(result, copies.__getitem__)
        copies[result].meta["val"] = result.meta["val"]
    copies[node].meta["val"] = node.meta["val"]
    outputs = tuple(map(copies.__getitem__, results))
    graph.output(outputs)
    user_output = OutputKind.USER_OUTPUT
    signature = ExportGraphSignature(
        [InputSpec(InputKind.USER_INPUT, _argument(value), None) for value in inputs],
        [OutputSpec(user_output, _argument(value), None) for value in outputs],
    )
    in_spec = pytree.tree_structure((inputs, {}))
    out_spec = pytree.tree_structure(outputs)
    call = ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec))
    return ExportedProgram(
        root=torch.nn.Module(),
        graph=graph,
        graph_signature=signature,
        state_dict={},
        range_constraints=dict(program.range_constraints),
        module_call_graph=[call],
    )


def _argument(node: Node) -> ArgumentSpec:
    if isinstance(node.meta["val"], Tensor):
        return TensorArgument(name=node.name)
    return SymIntArgument(name=node.name)


def _spliced(part: ExportedProgram, node: Node) -> list[Node]:
    """Copy a part's operators in front of a node and return its outputs; its lifted numbers become ``full``."""
    names = part.graph_signature.user_inputs
    inputs = dict(zip(names, (*node.all_input_nodes, node), strict=True))
    provenance = {key: node.meta[key] for key in _PROVENANCE if key in node.meta}
    full = exir_ops.edge.aten.full.default
    copies: dict[Node, Node] = {}
    with node.graph.inserting_before(node):
        for inner in part.graph.nodes:
            constant = _constant(part, inner)
            if inner.name in inputs:
                copies[inner] = inputs[inner.name]
            elif constant is not None:
                arguments = list(constant.shape), constant.flatten()[0].item()
                copies[inner] = node.graph.call_function(
                    full, arguments, {"dtype": constant.dtype}
                )
                copies[inner].meta["val"] = inner.meta["val"]
        outputs = node.graph.graph_copy(part.graph, copies)
    for inner, copy in copies.items():
        if inner.name not in inputs:
            copy.meta |= provenance
    return list(outputs)  # type: ignore[arg-type]


def _constant(part: ExportedProgram, inner: Node) -> Tensor | None:
    """Return the tensor that a node of a part holds, None for a node that holds none."""
    if inner.op == "get_attr":
        return attribute(part.graph_module, inner.target)
    name = held_names(part).get(inner.name, "")
    return {**part.state_dict, **part.constants}.get(name)
