"""Weights keep the user's name for messages, where the passes before annotation give them numbers."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import attribute

#: Key in ``node.meta["custom"]``.
_OWN_NAME = "safe_arm_own_name"


def name_weights(model: GraphModule, tensors: Mapping[str, Tensor]) -> None:
    """Write on each constant of a transformed graph the name of the tensor it shares its memory with."""
    names = {tensor.data_ptr(): name for name, tensor in tensors.items()}
    for node in model.graph.find_nodes(op="get_attr"):
        value = attribute(model, str(node.target))
        if isinstance(value, Tensor) and (name := names.get(value.data_ptr())):
            node.meta["custom"] = {**(node.meta.get("custom") or {}), _OWN_NAME: name}


def own_name(node: Node) -> str:
    """Return what the user knows a value by: a weight's own name, the name of any other node."""
    return str((node.meta.get("custom") or {}).get(_OWN_NAME, node.name))
