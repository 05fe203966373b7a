"""Cut a tagged program into the programs its delegates are compiled from, without changing it.

ExecuTorch does the same after ``partition`` returns; here its own helpers work on a shallow copy, so that what a
trial lowers is what will be lowered (exir/backend/backend_api.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import torch
from executorch.exir import EdgeCompileConfig
from executorch.exir.backend.backend_api import _create_partitions
from executorch.exir.backend.partitioner import DelegationSpec, PartitionResult
from executorch.exir.backend.utils import (
    _maybe_duplicate_constant_nodes,
    tag_constant_data,
)
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from executorch.exir.verification.verifier import EXIREdgeDialectVerifier
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.release_1_4 import STATES_ARE_CONSTANTS
from safe_arm._compat.upstream import BackendDetails
from safe_arm.core.island import all_nodes, call_functions
from safe_arm.core.origins import ORIGIN_KEY

TAG = "delegation_tag"

TagOf = Callable[[Node], "str | None"]


def tag_of(node: Node) -> str | None:
    """Return the tag of the delegate a node is proposed for, None for none."""
    return node.meta.get(TAG)


def clear_tags(graph_module: GraphModule) -> None:
    """Take the tags off every node of a graph and its nested graphs."""
    for node in all_nodes(graph_module):
        node.meta.pop(TAG, None)


def number_tags(graph_module: GraphModule) -> dict[str, str]:
    """Name the delegates of a tagged graph by their order in it: ``tag0`` is the first that runs.

    Stock numbers them from the end.

    Returns:
        Each new tag, in graph order, with the one it takes the place of.
    """
    names: dict[str, str] = {}
    for node in call_functions(graph_module):
        tag = tag_of(node)
        if tag is not None:
            names.setdefault(tag, f"tag{len(names)}")
    for node in all_nodes(graph_module):
        tag = tag_of(node)
        if tag in names:
            node.meta[TAG] = names[tag]
    return {new: old for old, new in names.items()}


def is_edge_program(program: ExportedProgram) -> bool:
    """Tell a program in the edge dialect from one in ATen."""
    for node in program.graph.nodes:
        if node.target is executorch_call_delegate:
            return True
        if isinstance(node.target, EdgeOpOverload):
            return True
    return False


def retag_constants(program: ExportedProgram) -> None:
    """Give constants the tag of the delegate that alone uses them, after the tags of operators changed.

    A mutable buffer that the stock partitioner gave to a delegate goes with its readers (1.6 on); before 1.5 it does
    so for lack of a better view of them, and the delegate writes into nothing (E3).
    """
    mutable = _mutable_buffers(program)
    owned = _owned_buffers(program)
    for node in program.graph.find_nodes(op="placeholder"):
        node.meta.pop(TAG, None)
    tag_constant_data(program)
    for node in mutable:
        node.meta.pop(TAG, None)
    if not STATES_ARE_CONSTANTS:
        for node in owned:
            _tag_as_users(node)
    share_listed_constants(program)


def share_listed_constants(program: ExportedProgram) -> None:
    """Leave constants to the program that several delegates read, and one in a list, such as that of an index.

    ExecuTorch copies a constant for each delegate, but changes no list, and raises on the reader that is left.
    """
    for node in program.graph.find_nodes(op="placeholder"):
        is_listed = False
        for user in node.users:
            if node not in user.args and node not in user.kwargs.values():
                is_listed = True
        if is_listed and len(set(map(tag_of, node.users))) > 1:
            node.meta.pop(TAG, None)


def _tag_as_users(node: Node) -> None:
    """Give a node the tag that all its users have, if there is one."""
    tags = {tag_of(user) for user in node.users}
    if len(tags) == 1 and None not in tags:
        node.meta[TAG] = tags.pop()


def mutated_buffers(program: ExportedProgram) -> list[frozenset[Node]]:
    """Return, for each mutable buffer that a delegate owns, the operators that read it and those that write it."""
    signature = program.graph_signature
    buffers = signature.inputs_to_buffers
    writers = {spec.target: spec.arg.name for spec in signature.output_specs}
    nodes = {node.name: node for node in program.graph.nodes}
    groups = []
    for node in _owned_buffers(program):
        writer = nodes[writers[buffers[node.name]]]
        groups.append(frozenset((*node.users, writer)))
    return groups


def _owned_buffers(program: ExportedProgram) -> list[Node]:
    """Return the placeholders of the mutable buffers that a delegate owns."""
    return [node for node in _mutable_buffers(program) if tag_of(node) is not None]


def _mutable_buffers(program: ExportedProgram) -> list[Node]:
    mutated = set(program.graph_signature.buffers_to_mutate.values())
    buffers = program.graph_signature.inputs_to_buffers
    placeholders = program.graph.find_nodes(op="placeholder")
    return [node for node in placeholders if buffers.get(node.name) in mutated]


def retag_branches(graph_module: GraphModule) -> None:
    """Give the branches of control flow the tag of the operator that runs them, after the tags of operators changed.

    The stock partitioner tags a branch even where it refuses the operator, and ExecuTorch crashes on that.
    """
    for module in graph_module.modules():
        if not isinstance(module, GraphModule):
            continue
        for node in module.graph.find_nodes(op="get_attr"):
            if isinstance(getattr(module, str(node.target), None), GraphModule):
                node.meta.pop(TAG, None)
                _tag_as_users(node)


def copied(
    program: ExportedProgram,
    state_dict: Mapping[str, torch.Tensor],
    tags: TagOf = tag_of,
) -> ExportedProgram:
    """Return a copy of a program that shares its tensors but no graph, tagged as ``tags`` says.

    Args:
        program: the tagged program, its parameters fake or real.
        state_dict: the parameters and buffers of the copy.
        tags: returns the tag of each operator of the copy, given the original's node.
    """
    graph_module = copy.deepcopy(program.graph_module)
    _mark(program.graph_module, graph_module, tags, "")
    retag_branches(graph_module)
    copy_of = with_graph(program, graph_module, state_dict)
    retag_constants(copy_of)
    return copy_of


def with_graph(
    program: ExportedProgram,
    graph_module: GraphModule,
    state_dict: Mapping[str, torch.Tensor],
) -> ExportedProgram:
    """Return a program like another with a graph of its own.

    Args:
        program: the other; the two share constants.
        graph_module: the graph, its placeholders and outputs those of the other. A copy may have named its placeholders
            anew, as it does ``input`` and whatever else Python has a function of; they get their names back.
        state_dict: the parameters and buffers.
    """
    placeholders = program.graph.find_nodes(op="placeholder")
    copies = graph_module.graph.find_nodes(op="placeholder")
    for placeholder, copied in zip(placeholders, copies, strict=True):
        copied.name = placeholder.name
    return ExportedProgram(
        root=graph_module,
        graph=graph_module.graph,
        graph_signature=copy.deepcopy(program.graph_signature),
        state_dict=dict(state_dict),
        range_constraints=dict(program.range_constraints),
        module_call_graph=copy.deepcopy(program.module_call_graph),
        constants=dict(program.constants),
        verifiers=[program.verifier],
    )


def leave_unchecked(delegate: ExportedProgram) -> None:
    """Keep ExecuTorch from checking a delegate's program for what the edge dialect allows: TOSA's operators are none.

    Where ``EdgeCompileConfig`` asks for the check, as it does by default, it fails on the shape of a scalar.
    """
    config = EdgeCompileConfig(_check_ir_validity=False)
    unchecked = EXIREdgeDialectVerifier(edge_compile_config=config, class_only=True)
    delegate._verifiers = [unchecked]


def _mark(
    module: GraphModule,
    copy_of: GraphModule,
    tags: TagOf,
    path: str,
) -> None:
    """Give each node of a copy its origin and its tag."""
    for node, twin in zip(module.graph.nodes, copy_of.graph.nodes, strict=True):
        twin.meta[ORIGIN_KEY] = path + node.name
        if node.op == "placeholder":
            continue  # Its tag says that a delegate owns it, see retag_constants.
        twin.meta.pop(TAG, None)
        if node.op != "output" and (tag := tags(node)) is not None:
            twin.meta[TAG] = tag
        if node.op != "get_attr":
            continue
        name = str(node.target)
        nested = getattr(module, name, None)
        if isinstance(nested, GraphModule):
            _mark(nested, getattr(copy_of, name), tags, f"{path}{name}.")


def delegate_programs(
    program: ExportedProgram, specs: Mapping[str, DelegationSpec]
) -> list[tuple[str, ExportedProgram]]:
    """Cut a tagged copy into (tag, program) pairs, one for each delegate.

    The copy is used up. The tags go in the order of ``specs``, as in ExecuTorch: names in later delegates depend on it.
    """
    for tag in specs:
        _maybe_duplicate_constant_nodes(program, tag)
    tagged = PartitionResult(program, dict(specs))
    calls = _create_partitions(program.graph_module, tagged, program)
    programs = []
    for nodes in calls.values():
        for call in nodes:
            tag = str(call.target).removeprefix("fused_")
            programs.append((tag, call.meta["submodule_program"]))
    return programs


def backend_of(backend_id: str) -> type[BackendDetails]:
    """Return the backend class that ExecuTorch finds for an id."""
    return next(c for c in BackendDetails.__subclasses__() if c.__name__ == backend_id)
