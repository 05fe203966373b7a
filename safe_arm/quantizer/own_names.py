"""Weights keep the user's name for messages, where the passes before annotation give them numbers."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import attribute
from safe_arm.core.exceptions import Caught, attempted

#: Key in ``node.meta["custom"]``.
_OWN_NAME = "safe_arm_own_name"


def name_weights(model: GraphModule, tensors: Mapping[str, Tensor]) -> None:
    """Write on each constant of a transformed graph the name of the tensor it shares its memory with."""
    names = {
        place: name for name, tensor in tensors.items() if (place := _place(tensor))
    }
    for node in model.graph.find_nodes(op="get_attr"):
        value = attribute(model, str(node.target))
        if isinstance(value, Tensor) and (name := names.get(_place(value))):
            write_name(node, name)


def write_name(node: Node, name: str) -> None:
    """Write on a constant what the user knows it by."""
    node.meta["custom"] = {**(node.meta.get("custom") or {}), _OWN_NAME: name}


def _place(tensor: Tensor) -> int:
    """Return where a tensor's values are; 0 if there are none, or nowhere at hand."""
    place = attempted(tensor.data_ptr)
    return 0 if isinstance(place, Caught) else place


def own_name(node: Node) -> str:
    """Return what the user knows a value by: a weight's own name, the name of any other node."""
    return str((node.meta.get("custom") or {}).get(_OWN_NAME, node.name))
