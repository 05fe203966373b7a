"""The node of the user's graph that a node of a transformed graph comes from, and those that an exception is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TypeVar

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import attribute
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.island import all_nodes
from safe_arm.core.lowering_record import current_lowering

#: Key in each node's meta, for the time of a run, of the node's name: re-traced nodes keep it.
ORIGIN_KEY = "safe_arm_origin"
#: The attribute by which an exception says which nodes were being worked on.
_NOTED = "safe_arm_nodes"
#: Names that passes, fx's interpreter and annotators give the current node; these are looked at before other names.
_CURRENT = ("node", "n", "meta")
#: Maximum length of a list of nodes that counts as evidence about each of them.
_FEW = 8

T = TypeVar("T")


def origin(node: Node) -> str:
    """Return the name in the user's graph of a node, with the path of nested graphs before it."""
    return str(node.meta.get(ORIGIN_KEY, node.name))


@contextmanager
def origins_planted(graph_module: GraphModule) -> Iterator[None]:
    """Let every node say its own name, nodes of nested graphs that of their outermost caller, while the block runs."""
    planted = list(_with_callers(graph_module, None))
    for node, name in planted:
        node.meta[ORIGIN_KEY] = name
    try:
        yield
    finally:
        for node, _ in planted:
            node.meta.pop(ORIGIN_KEY, None)


def attempted_on(
    graph_module: GraphModule, call: Callable[[GraphModule], T]
) -> tuple[T | Caught, list[str]]:
    """Return what a call makes of a graph, and the ``suspects`` among its nodes if it raises."""
    with origins_planted(graph_module):
        result = attempted(call, graph_module)
        return result, suspects(result) if isinstance(result, Caught) else []


def remove_origins(graph_module: GraphModule) -> None:
    """Take the planted names off a graph that a run returned, nested graphs included."""
    for node in all_nodes(graph_module):
        node.meta.pop(ORIGIN_KEY, None)


def leave_origins(graph_module: GraphModule) -> None:
    """Leave in the record of this thread's lowering where a finished graph's nodes come from, and their shapes."""
    record = current_lowering()
    shapes = {}
    for node in graph_module.graph.nodes:
        if ORIGIN_KEY in node.meta:
            record.origins[node.name] = node.meta[ORIGIN_KEY]
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            shapes[node.name] = value.shape
    record.shapes.append(shapes)


def note_node(error: BaseException, node: Node) -> None:
    """Let an exception say which node was being worked on when it was raised, unless it says so already."""
    if not hasattr(error, _NOTED):
        setattr(error, _NOTED, node)


def suspects(caught: Caught) -> list[str]:
    """Return the planted names of the nodes an exception may be about, the likeliest first; call it while planted.

    Those are the nodes noted where it was raised; after them, as a last resort, what local variables of the traceback
    hold: the root exception's before its wrappers', inner frames before outer ones.
    """
    evidence: list[object] = [getattr(link, _NOTED, None) for link in caught.causes]
    for frame in caught.frames:
        variables = frame.f_locals
        names = sorted(variables, key=lambda name: name not in _CURRENT)
        evidence += map(variables.__getitem__, names)
    return list(dict.fromkeys(chain.from_iterable(map(_origins, evidence))))


def _with_callers(
    graph_module: GraphModule, caller: str | None
) -> Iterator[tuple[Node, str]]:
    """Yield every node with the name of its outermost caller, its own name if it has none."""
    for node in graph_module.graph.nodes:
        yield node, caller or node.name
        if node.op != "get_attr":
            continue
        nested = attribute(graph_module, node.target)
        if isinstance(nested, GraphModule):
            user = next(iter(node.users), node)
            yield from _with_callers(nested, caller or user.name)


def _origins(value: object) -> Iterator[str]:
    """Yield the planted names of a node, of its metadata, or of the nodes in a short list."""
    if isinstance(value, (list, tuple)) and len(value) <= _FEW:
        for item in value:
            if isinstance(item, Node):
                yield from _origins(item)
        return
    if isinstance(value, Node):
        name = value.meta.get(ORIGIN_KEY)
    elif type(value).__name__ == "NodeMetadata":
        name = value.data.get(ORIGIN_KEY)  # type: ignore[attr-defined]
    else:
        return
    if isinstance(name, str):
        yield name
