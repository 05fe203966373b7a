"""Calls of a node's operator on values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Node
from torch.fx.node import Argument, map_arg


def called(
    node: Node,
    value_of: Callable[[Node], Any],
    function: Callable[..., Any] | None = None,
) -> Any:
    """Call an operator on the values of its inputs.

    Args:
        node: the operator.
        value_of: returns the value of an input.
        function: called in place of the operator.
    """
    arguments: Any = (node.args, node.kwargs)
    args, kwargs = map_arg(arguments, value_of)
    operator: Any = function or node.target
    return operator(*args, **kwargs)


def example_value(node: Node) -> Any:
    """Return the fake value that a node was traced with."""
    return node.meta["val"]


def insert_like(
    like: Node, target: Callable[..., Any], source: Node, *arguments: Argument
) -> Node:
    """Insert an operator at the graph's current place, with the provenance and notes of another one."""
    inserted = like.graph.call_function(target, (source, *arguments))
    inserted.meta = {**like.meta, "val": target(source.meta["val"], *arguments)}
    return inserted
