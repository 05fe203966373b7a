"""Branches of conditions and loops read no tensors of their own: torch cannot trace them once they are nested.

Stock writes tensors of one element as numbers, in branches that are not nested and before its other passes; on a larger
tensor it raises.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import stored_value
from safe_arm.core.control_flow import CONDITION, LOOP, branch_reads, branches_of
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    calls,
    is_branch,
    is_float32,
    replace_node,
    set_attribute,
    tensor_of,
)

_CLONE = torch.ops.aten.clone.default
_DROPOUT = torch.ops.aten.dropout.default
_FULL = torch.ops.aten.full.default
#: Export copies each tensor that a net makes while it runs.
_COPIES = (torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.detach_.default)


def pass_tensors_in(model: GraphModule) -> None:
    """Hand the tensors of several elements that branches read to them as operands.

    Args:
        model: a float graph before annotation; changed in place, with the graphs of its branches.
    """
    for node in list(calls(model, CONDITION, LOOP)):
        branches = branches_of(node)
        tensors: list[Node] = []
        for branch, name in zip(branches, branch_reads(node), strict=True):
            pass_tensors_in(branch)
            for read in _tensors_read(branch):
                outside = _hand_over(read, node, f"{read.name}_of_{name.target}")
                _take_in(read, outside, branches)
                tensors.append(outside)
        if tensors:
            *others, operands = node.args
            node.args = (*others, (*operands, *tensors))
            model.recompile()


def _tensors_read(branch: GraphModule) -> list[Node]:
    reads = []
    for node in branch.graph.find_nodes(op="get_attr"):
        value = tensor_of(node)
        if value is not None and value.numel() > 1:
            reads.append(node)
    return reads


def _hand_over(read: Node, node: Node, name: str) -> Node:
    """Store what a branch reads outside of it, under a name, and read it there."""
    model = node.graph.owning_module
    assert model is not None
    value = stored_value(read)
    set_attribute(model, name, value)
    return Writer(node).read(name, read)


def _take_in(read: Node, outside: Node, branches: Iterable[GraphModule]) -> None:
    """Give both branches one more input, and let the one that read the tensor read its input."""
    for branch in branches:
        computed = (node for node in branch.graph.nodes if node.op != "placeholder")
        with branch.graph.inserting_before(next(computed)):
            taken = branch.graph.placeholder(str(outside.target))
        taken.meta = dict(read.meta)
        if branch is read.graph.owning_module:
            replace_node(read, taken)
            _drop_copies(taken)
        branch.recompile()


def _drop_copies(value: Node) -> None:
    for reader in list(value.users):
        if reader.target in _COPIES:
            replace_node(reader, value)
            _drop_copies(value)


def drop_copies_in_branches(model: GraphModule) -> None:
    """Let branches of conditions return values instead of copies of them.

    Export copies what a branch returns of its operands. Quantised, the branch computes nothing, which stock takes into
    no delegate, and the condition neither.

    Args:
        model: a float graph before annotation; the graphs of its branches are changed in place.
    """
    for node in calls(model, CONDITION):
        for branch in branches_of(node):
            drop_copies_in_branches(branch)
            for copied in list(calls(branch, _CLONE, _DROPOUT)):
                is_plain = not copied.kwargs and not any(copied.args[2:])
                if is_float32(copied) and is_plain:
                    replace_node(copied, copied.all_input_nodes[0])
            branch.recompile()


def fill_branches(model: GraphModule) -> None:
    """Write tensors that have one value as what fills them, in the graph of a branch.

    Args:
        model: a float graph before annotation; changed in place if it is that of a branch.
    """
    if not is_branch(model):
        return
    for node in model.graph.find_nodes(op="get_attr"):
        if tensor_of(node) is None:
            continue
        stored = stored_value(node)
        values = stored.unique()
        if len(values) != 1:
            continue
        arguments = (stored.shape, values.item())
        with model.graph.inserting_before(node):
            filled = model.graph.call_function(
                _FULL, arguments, {"dtype": stored.dtype}
            )
        filled.meta = dict(node.meta)
        replace_node(node, filled)
    model.recompile()
