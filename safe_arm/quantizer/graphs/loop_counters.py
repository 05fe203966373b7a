"""Loops carry scalars with a dimension, and integers in 32 bits: no delegate takes others."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node

from safe_arm.core.calls import called, example_value
from safe_arm.core.control_flow import LOOP, branches_of
from safe_arm.core.island import call_functions, graph_modules
from safe_arm.quantizer.graphs.graph_edits import Writer, calls, tensor_of

_CAST = torch.ops.aten.to.dtype
_RESHAPE = torch.ops.aten.reshape.default


def carry_counters(model: GraphModule) -> None:
    """Let loops carry a scalar as a tensor of one element, and int64 as int32.

    A counter that export writes for ``torch.tensor(0)`` is both. The backend narrows a counter that a loop reads, and
    not what its body returns, and takes no scalar of the net's own: the loop stays on the CPU, which ends the
    export (T66).

    Args:
        model: a float graph before annotation; changed in place, with the graphs of its loops.
    """
    for graph_module in graph_modules(model):
        for loop in list(calls(graph_module, LOOP)):
            if _carry_plainly(loop):
                graph_module.recompile()


def _carry_plainly(loop: Node) -> bool:
    """Write what a loop carries anew, and tell whether any of it had to be."""
    arguments: Any = loop.args
    condition, body, carried, additional = arguments
    counters = []
    operands = list(carried)
    for index, operand in enumerate(carried):
        value = tensor_of(operand)
        if value is not None and (not value.dim() or value.dtype == torch.int64):
            counters.append(index)
            operands[index] = _plain(operand, loop)
    if not counters:
        return False
    loop.args = (condition, body, tuple(operands), additional)
    branches = branches_of(loop)
    for branch in branches:
        _take_plain(branch, operands, counters)
    _return_plain(branches[1], counters)
    _read_plain(loop, operands, counters)
    return True


def _plain(node: Node, reader: Node) -> Node:
    """Write a value with a dimension and in 32 bits, before its reader."""
    write = Writer(reader, marks=node)
    value = node.meta["val"]
    if value.dtype == torch.int64:
        node = write(_CAST, node, torch.int32)
    return node if value.dim() else write(_RESHAPE, node, [1])


def _take_plain(branch: GraphModule, operands: list[Any], counters: list[int]) -> None:
    """Let the graph of a loop read its counters in their new form, and compute with them in 32 bits."""
    inputs = branch.graph.find_nodes(op="placeholder")
    first = next(node for node in branch.graph.nodes if node.op != "placeholder")
    for index in counters:
        taken = inputs[index]
        is_scalar = not taken.meta["val"].dim()
        taken.meta["val"] = operands[index].meta["val"]
        if is_scalar:
            readers = list(taken.users)
            scalar = Writer(first, marks=taken)(_RESHAPE, taken, [])
            for reader in readers:
                reader.replace_input_with(taken, scalar)
    for node in call_functions(branch):
        is_computed = bool(node.all_input_nodes)
        # A factory computes of nothing: called by itself it gives no fake tensor.
        if is_computed and not isinstance(node.target, HigherOrderOperator):
            node.meta["val"] = called(node, example_value)
    branch.recompile()


def _return_plain(body: GraphModule, counters: list[int]) -> None:
    output = body.graph.output_node()
    returned: Any = output.args[0]
    results = list(returned)
    for index in counters:
        results[index] = _plain(results[index], output)
    output.args = (tuple(results),)
    body.recompile()


def _read_plain(loop: Node, carried: Any, counters: list[int]) -> None:
    """Give what reads a counter behind the loop the value that the net has."""
    for pick in list(loop.users):
        index: Any = pick.args[1]
        if index not in counters:
            continue
        value = pick.meta["val"]
        pick.meta["val"] = carried[index].meta["val"]
        readers = list(pick.users)
        write = Writer(pick.next, marks=pick)
        restored = pick
        if not value.dim():
            restored = write(_RESHAPE, restored, [])
        if value.dtype == torch.int64:
            restored = write(_CAST, restored, torch.int64)
        for reader in readers:
            reader.replace_input_with(pick, restored)
