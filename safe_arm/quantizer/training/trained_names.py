"""Keep the user's names of parameters and buffers in a graph that is trained.

The passes before annotation number them (``_param_constant0``). An optimiser's groups and a ``state_dict`` go by name,
and so does the proof that a batch norm's statistics move as in the float net. What stands for a parameter in another
form, such as a weight that is transposed, has its name with ``trained_`` before the last part: groups that go by parts
of a name, and by its module, hold for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

import torch
from executorch.backends.arm.quantizer import QuantizationConfig
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.nn import Parameter

from safe_arm.core.attributes import attribute, set_attribute, stored_value
from safe_arm.core.doubts import COUNTER
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.quantizer.graphs.graph_edits import (
    add_constant,
    add_operator,
    calls,
    replace_node,
    tensor_of,
)
from safe_arm.quantizer.graphs.own_names import address_of, own_name
from safe_arm.quantizer.training.trained_constants import COMPUTED, is_for_training

_ATEN = torch.ops.aten

_NORM = _ATEN.batch_norm.default
_VIEW = _ATEN.view.default
#: Operators by which factors and offsets of channels meet a value.
_ARITHMETIC = (
    _ATEN.mul.Tensor,
    _ATEN.add.Tensor,
    _ATEN.sub.Tensor,
    _ATEN.div.Tensor,
)
#: Place of the flag that tells whether a norm is trained.
_TRAINING = 5


def names_of_norms(model: GraphModule) -> list[list[str]]:
    """Return the names of the parameters and statistics of each batch norm, in order."""
    names = []
    for norm in calls(model, _NORM):
        read = []
        for node in norm.all_input_nodes[1:]:
            read.append(str(node.target))
        names.append(read)
    return names


def give_names_back(
    model: GraphModule,
    tensors: Mapping[str, Tensor],
    norms: Sequence[Sequence[str]],
    config: QuantizationConfig | None,
) -> None:
    """Let a transformed graph read each tensor of the user's by the user's name, if it is to be trained.

    The statistics of a norm are copies after a trace: they are known by the norm that reads them. Nothing reads how
    many batches a norm has seen: the passes drop the counters, and the graph gets them back as they were.

    Args:
        model: a graph whose constants bear the user's names as notes; changed in place.
        tensors: the user's parameters and buffers by name.
        norms: the names of the parameters and statistics of each batch norm before the passes, in order.
        config: the quantiser's.
    """
    trains = any(norm.args[_TRAINING] is True for norm in calls(model, _NORM))
    if not trains and not is_for_training(config):
        return
    names = _names(model, norms)
    for node in list(model.graph.find_nodes(op="get_attr")):
        name = names.get(node, own_name(node))
        if name in tensors and _is_numbered(node, tensors):
            _rename(model, node, name, tensors[name])
        sources = []
        for source in name.removeprefix(COMPUTED).split(", "):
            if source in tensors:
                sources.append(source)
        if sources and _is_numbered(node, tensors):
            # The direction of a normalised weight names it, not the lengths.
            largest = max(sources, key=lambda each: tensors[each].numel())
            if not _read_in_its_shape(model, node, largest, tensors[largest]):
                _name_after(model, node, largest)
    for name, tensor in tensors.items():
        is_lost = isinstance(attempted(attribute, model, name), Caught)
        if name.endswith(COUNTER) and is_lost:
            set_attribute(model, name, tensor)
    model.recompile()


def _is_numbered(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Return whether a constant has a name that a pass gave it."""
    if node.target in tensors:
        return False
    return "." not in str(node.target)


def _names(
    model: GraphModule,
    norms: Sequence[Sequence[str]],
) -> dict[Node, str]:
    """Return the names of what the batch norms read now, if they are those that there were."""
    names: dict[Node, str] = {}
    after = list(calls(model, _NORM))
    if len(after) != len(norms):
        return names
    for norm, before in zip(after, norms, strict=True):
        read = norm.all_input_nodes[1:]
        names.update(zip(read, before, strict=False))
    return names


def _rename(
    model: GraphModule,
    node: Node,
    name: str,
    tensor: Tensor,
) -> None:
    """Read a tensor by its name, if what is read is the tensor or a copy of it."""
    numbered = node.target
    value = stored_value(node)
    if not _is_same(value, tensor):
        return
    set_attribute(model, name, tensor)
    node.target = name
    _forget_unread(model, str(numbered))


def _forget_unread(model: GraphModule, name: str) -> None:
    """Remove a tensor that no node reads."""
    if not list(model.graph.find_nodes(op="get_attr", target=name)):
        delattr(model, name)


def _read_in_its_shape(
    model: GraphModule,
    node: Node,
    name: str,
    tensor: Tensor,
) -> bool:
    """Read a parameter by its name and view it, where arithmetic reads it in another shape; tell whether it is."""
    numbered = node.target
    value = stored_value(node)
    if address_of(value) != address_of(tensor) or value.numel() != tensor.numel():
        return False
    if any(reader.target not in _ARITHMETIC for reader in node.users):
        return False
    like = tensor_of(node)
    (reader, *_) = node.users
    with model.graph.inserting_before(node):
        read = add_constant(model, name, tensor, like)
        view = add_operator(_VIEW, read, list(value.shape))
    read.meta = {**node.meta, "val": read.meta["val"]}
    view.meta = {**reader.meta, "val": view.meta["val"]}
    replace_node(node, view)
    _forget_unread(model, str(numbered))
    return True


def _name_after(model: GraphModule, node: Node, source: str) -> None:
    """Read a parameter by the name of the one that it was made of."""
    numbered = node.target
    value = stored_value(node)
    if not isinstance(value, Parameter) or not value.requires_grad:
        return
    path, dot, leaf = source.rpartition(".")
    first = name = f"{path}{dot}trained_{leaf}"
    others = count()
    while not isinstance(attempted(attribute, model, name), Caught):
        name = f"{first}_{next(others)}"
    set_attribute(model, name, value)
    for reader in list(model.graph.find_nodes(op="get_attr", target=numbered)):
        reader.target = name
    delattr(model, str(numbered))


def _is_same(value: Tensor, tensor: Tensor) -> bool:
    """Return whether a value is a tensor, or a copy of it."""
    if value.shape != tensor.shape:
        return False
    if value.dtype != tensor.dtype:
        return False
    if address_of(value) == address_of(tensor):
        return True
    return torch.equal(value, tensor)
