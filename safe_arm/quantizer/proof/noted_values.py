"""Note the values that a graph computes, where an export noted others.

An export within ``torch.autocast`` notes each value in the dtype of that scope, and the graph has no scope: it computes
in float32 when it is calibrated and when it runs. A step that reads the noted dtype would write it into the graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Interpreter, Node

from safe_arm.core.exceptions import attempted
from safe_arm.quantizer.graphs.graph_edits import tensor_of

_LOW = (torch.bfloat16, torch.float16)


def note_computed_values(model: GraphModule) -> None:
    """Compute the noted values of a float graph anew if one of them is of an autocast; changed in place."""
    for node in model.graph.find_nodes(op="placeholder"):
        value = tensor_of(node)
        if isinstance(value, FakeTensor) and _is_noted_in_scope(model):
            with value.fake_mode:
                attempted(_NotesValues(model).run, enable_io_processing=False)
            return


def _is_noted_in_scope(model: GraphModule) -> bool:
    """Tell whether an operator gives fewer bits than all that it reads, and none that asks for them."""
    for node in model.graph.nodes:
        value = tensor_of(node)
        if value is None or value.dtype not in _LOW or _names_dtype(node):
            continue
        read = [tensor_of(each) for each in node.all_input_nodes]
        floats = [
            each for each in read if each is not None and each.is_floating_point()
        ]
        if floats and all(each.dtype == torch.float32 for each in floats):
            return True
    return False


def _names_dtype(node: Node) -> bool:
    """Tell whether an operator is asked for a dtype, or is no operator of torch."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    named = (*node.args, *node.kwargs.values())
    return any(isinstance(each, torch.dtype) for each in named)


class _NotesValues(Interpreter):
    """Runs a graph on the fake values of its inputs and tensors, and notes what each operator gives."""

    def run_node(self, n: Node) -> Any:
        noted = n.meta.get("val")
        if n.op in ("placeholder", "get_attr") and noted is not None:
            return noted
        value = super().run_node(n)
        if noted is not None:
            n.meta["val"] = value
        return value
