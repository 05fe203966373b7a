"""Attributes by dotted name, as the targets of ``get_attr`` and ``call_module`` nodes spell them."""

from __future__ import annotations

import copy
import operator
from typing import Any, TypeVar

import torch
from torch.fx import Node

Module = TypeVar("Module", bound=torch.nn.Module)


def attribute(owner: object, dotted_name: object) -> Any:
    """Return the attribute a dotted name stands for.

    Raises:
        AttributeError: a part of the path does not exist.
    """
    return operator.attrgetter(str(dotted_name))(owner)


def stored_value(node: Node) -> Any:
    """Return the tensor or module that a ``get_attr`` node reads."""
    return attribute(node.graph.owning_module, node.target)


def set_attribute(owner: torch.nn.Module, dotted_name: object, value: object) -> None:
    """Set a module's attribute by dotted name; modules on its path are added, a plain tensor becomes a buffer."""
    path, _, name = str(dotted_name).rpartition(".")
    for part in filter(None, path.split(".")):
        if not hasattr(owner, part):
            owner.add_module(part, torch.nn.Module())
        owner = getattr(owner, part)
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        owner.__dict__.pop(name, None)
        owner._parameters.pop(name, None)
        owner.register_buffer(name, value)
    else:
        setattr(owner, name, value)


def duplicate(module: Module) -> Module:
    """Return a deep copy of a module, even of one with tensors that were computed with gradients on.

    Torch itself refuses to copy those.
    """
    copies: dict[int, object] = {}
    for part in module.modules():
        for value in (*vars(part).values(), *part._buffers.values()):
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                copies[id(value)] = value.detach().clone()
    return copy.deepcopy(module, copies)
