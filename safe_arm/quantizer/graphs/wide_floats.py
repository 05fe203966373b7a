"""A net of 16-bit floats, or with a scope that casts to them, is quantised in float32, but for inputs and outputs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map

from safe_arm.core.attributes import stored_value
from safe_arm.core.island import call_functions
from safe_arm.quantizer.graphs.graph_edits import add_constant, add_operator, has_dtype
from safe_arm.quantizer.graphs.operator_schemas import is_mutable
from safe_arm.quantizer.graphs.plain_scopes import body_of, casts, write_scopes_out

_HALVES = (torch.float16, torch.bfloat16)
_CAST = torch.ops.aten.to.dtype


def compute_in_float32(model: GraphModule) -> None:
    """Write a graph of 16-bit floats with float32, and the bodies of its scopes into it.

    The codes of a sum or of a length have more digits than a 16-bit float, and between two quantisers torchao
    forgets that a value is none of float32: the converted graph dies on a layer that reads both.

    Args:
        model: a float graph before annotation; changed in place. One that writes 16-bit floats in place, or has control
            flow, is left alone.
    """
    output = model.graph.output_node()
    if not any(_is_inside(node, output) for node in model.graph.nodes):
        return
    if any(map(_is_bound, call_functions(model))):
        return
    write_scopes_out(model, with_casts=True)
    halves = list(filter(_is_half, model.graph.nodes))
    results = {}
    for node in output.all_input_nodes:
        if _is_half(node):
            results[node] = node.meta["val"].dtype
    for node in halves:
        if node.op != "call_function":
            _widen(model, node)
    for node in call_functions(model):
        node.args = tree_map(_wide, node.args)
        node.kwargs = tree_map(_wide, node.kwargs)
        node.meta["val"] = tree_map(_wide, node.meta.get("val"))
    _narrow(output, results)
    model.recompile()


def _narrow(output: Node, dtypes: dict[Node, torch.dtype]) -> None:
    """Cast results to the dtypes that they had; an input that is returned has its own."""
    for node, dtype in dtypes.items():
        if _is_half(node):
            continue
        with output.graph.inserting_before(output):
            narrow = add_operator(_CAST, node, dtype)
        output.replace_input_with(node, narrow)


def _is_inside(node: Node, output: Node) -> bool:
    """Tell whether a node computes with 16-bit floats; a scope is what its body is."""
    body = body_of(node)
    if body is not None:
        result = body.graph.output_node()
        return casts(node) or any(_is_inside(each, result) for each in body.graph.nodes)
    if not _is_half(node) or node.op == "placeholder":
        return False
    return {*node.users} != {output}


def _is_half(node: Node) -> bool:
    return has_dtype(node, *_HALVES)


def _is_bound(node: Node) -> bool:
    """Tell whether an operator is control flow, or writes into a 16-bit float; a scope is what its body is."""
    body = body_of(node)
    if body is not None:
        return any(map(_is_bound, call_functions(body)))
    if isinstance(node.target, HigherOrderOperator):
        return True
    return is_mutable(node) and any(map(_is_half, node.all_input_nodes))


def _widen(model: GraphModule, read: Node) -> None:
    """Let all that reads an input or a parameter read it in float32."""
    with model.graph.inserting_after(read):
        if read.op == "placeholder":
            wide = add_operator(_CAST, read, torch.float32)
        else:
            value = stored_value(read).detach().float()
            name = f"{read.name}_in_float32"
            wide = add_constant(model, name, value, read.meta["val"])
    for user in list(read.users):
        if user is wide:
            continue
        if user.op == "output":
            continue
        user.replace_input_with(read, wide)
    if not read.users:
        model.graph.erase_node(read)


def _wide(argument: object) -> object:
    if isinstance(argument, Tensor):
        if argument.dtype in _HALVES:
            return argument.float()
    elif argument in _HALVES:
        return torch.float32
    return argument
