"""Give a reader of a parameter or buffer its own copy, so that changing it affects no other reader."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import set_attribute, stored_value
from safe_arm.quantizer.graphs.graph_edits import Writer
from safe_arm.quantizer.graphs.own_names import write_name


def give_own_copy(
    model: GraphModule,
    read: Node,
    reader: Node,
    layer: Node,
) -> None:
    """Let one reader of a tensor read a copy.

    Args:
        model: the graph module, changed in place: the copy is a new attribute, the tensor stays where it is.
        read: the ``get_attr`` node.
        reader: the operator that gets the copy.
        layer: the layer whose copy it is, which names it.
    """
    name = _free_name(model, read, layer)
    tensor = stored_value(read)
    set_attribute(model, name, stored_like(tensor, tensor.detach().clone()))
    copied = Writer(reader).read(name, read)
    write_name(copied, str(read.target))
    reader.replace_input_with(read, copied)


def stored_like(tensor: Tensor, value: Tensor) -> Tensor:
    """Return a value as a parameter, if a tensor is one: it is trained if that is."""
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(value, tensor.requires_grad)
    return value


def has_own_copy(read: Node, layer: Node) -> bool:
    """Tell whether what is read was copied for this layer before."""
    return str(read.target).endswith(_ending(layer))


def _free_name(model: GraphModule, read: Node, layer: Node) -> str:
    flat = str(read.target).replace(".", "_")
    while hasattr(model, flat + _ending(layer)):
        flat += "_"
    return flat + _ending(layer)


def _ending(layer: Node) -> str:
    return f"_of_{layer.name}"
