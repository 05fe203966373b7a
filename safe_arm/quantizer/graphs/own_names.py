"""Keep the user's names of weights for messages, where the passes before annotation number them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import stored_value
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.notes import note_on, write_note

#: Key in ``node.meta["custom"]``.
_OWN_NAME = "safe_arm_own_name"


def name_weights(model: GraphModule, tensors: Mapping[str, Tensor]) -> None:
    """Write on each constant of a transformed graph the name of the tensor it shares its memory with."""
    names = {address_of(tensor): name for name, tensor in tensors.items()}
    for node in model.graph.find_nodes(op="get_attr"):
        value = stored_value(node)
        if isinstance(value, Tensor):
            address = address_of(value)
            if address and address in names:
                write_name(node, names[address])


def write_name(node: Node, name: str) -> None:
    """Write the user's name of a constant on it."""
    write_note(node, _OWN_NAME, name)


def address_of(tensor: Tensor) -> int:
    """Return the address of a tensor's values; 0 if there are none, or nowhere at hand."""
    address = attempted(tensor.data_ptr)
    return 0 if isinstance(address, Caught) else address


def own_name(node: Node) -> str:
    """Return the user's name of a value: a weight's own name, the name of any other node."""
    return note_on(node, _OWN_NAME) or node.name
