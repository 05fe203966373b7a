"""Small steps that several corrections of a float graph share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from safe_arm.core.attributes import set_attribute
from safe_arm.core.calls import called, example_value
from safe_arm.core.island import op_name
from safe_arm.core.operators import VIEWS, ElementOrigin, operators

#: Operators whose results are elements of their first argument, chosen by their places.
_MOVES = VIEWS | operators(ElementOrigin.PART)


def tensor_of(node: object) -> Tensor | None:
    """Return the fake tensor that a node gives; None for anything else."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value if isinstance(value, Tensor) else None


def moved_from(node: Node) -> Node:
    """Return the value whose elements a node shows, all or some, in this order or another."""
    while op_name(node) in _MOVES:
        source = node.args[0]
        if not isinstance(source, Node):
            break
        node = source
    return node


def add_call(
    graph: Graph, target: Callable[..., Any], *args: Any, **kwargs: Any
) -> Node:
    """Write an operator at the insertion point of a graph, with its fake value."""
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = called(node, example_value)
    return node


def add_constant(model: GraphModule, name: str, value: Tensor, like: Any) -> Node:
    """Store a tensor and read it at the insertion point; ``like`` is a fake tensor of the graph."""
    set_attribute(model, name, value)
    node = model.graph.get_attr(name)
    node.meta["val"] = like.fake_mode.from_tensor(value, static_shapes=True)
    return node


def write_note(node: Node, key: str, note: str) -> None:
    """Write a note on a node where export carries it along."""
    node.meta["custom"] = {**(node.meta.get("custom") or {}), key: note}


def note_on(node: Node, key: str) -> str:
    """Return a note that was written on a node; empty if there is none."""
    return str((node.meta.get("custom") or {}).get(key, ""))
