"""A net of 16-bit floats is quantised in float32; its inputs and outputs keep their dtypes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map

from safe_arm.core.attributes import attribute
from safe_arm.core.island import call_functions
from safe_arm.quantizer.graphs.graph_edits import add_call, add_constant, tensor_of

_HALVES = (torch.float16, torch.bfloat16)
_CAST = torch.ops.aten.to.dtype


def compute_in_float32(model: GraphModule) -> None:
    """Write a graph of 16-bit floats with float32.

    The codes of a sum or of a length have more digits than a 16-bit float, and between two quantisers torchao
    forgets that a value is none of float32: the converted graph dies on a layer that reads both.

    Args:
        model: a float graph before annotation; changed in place. One that writes 16-bit floats in place, or has control
            flow, is left alone.
    """
    halves = [node for node in model.graph.nodes if _is_half(node)]
    output = model.graph.output_node()
    inside = [
        node
        for node in halves
        if node.op != "placeholder" and {*node.users} != {output}
    ]
    if not inside or any(map(_is_bound, call_functions(model))):
        return
    narrow = {node: node.meta["val"].dtype for node in output.all_input_nodes}
    for node in halves:
        if node.op != "call_function":
            _widen(model, node)
    for node in call_functions(model):
        node.args, node.kwargs = tree_map(_wide, (node.args, node.kwargs))
        node.meta["val"] = tree_map(_wide, node.meta.get("val"))
    for node, dtype in narrow.items():
        result = tensor_of(node)
        if result is not None and result.dtype != dtype:
            with model.graph.inserting_before(output):
                output.replace_input_with(
                    node, add_call(model.graph, _CAST, node, dtype)
                )
    model.recompile()


def _is_half(node: Node) -> bool:
    value = tensor_of(node)
    return value is not None and value.dtype in _HALVES


def _is_bound(node: Node) -> bool:
    """Tell whether an operator is control flow, or writes into a 16-bit float."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return isinstance(node.target, HigherOrderOperator)
    return bool(schema.is_mutable) and any(map(_is_half, node.all_input_nodes))


def _widen(model: GraphModule, read: Node) -> None:
    """Let all that reads an input or a parameter read it in float32."""
    with model.graph.inserting_after(read):
        if read.op == "placeholder":
            wide = add_call(model.graph, _CAST, read, torch.float32)
        else:
            value = attribute(model, read.target).detach().float()
            name = f"{read.name}_in_float32"
            wide = add_constant(model, name, value, read.meta["val"])
    read.replace_all_uses_with(wide, delete_user_cb=lambda user: user is not wide)
    if read.op == "get_attr":
        model.graph.erase_node(read)


def _wide(argument: object) -> object:
    if isinstance(argument, Tensor):
        return argument.float() if argument.dtype in _HALVES else argument
    return torch.float32 if argument in _HALVES else argument
