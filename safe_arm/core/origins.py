"""Find out from an exception which node of a graph it was about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from types import FrameType
from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.errors import UsageError

#: Planted in each node's meta for the time of a run: re-traced nodes still say which node they come from.
ORIGIN_KEY = "safe_arm_origin"
#: What the passes, fx's interpreter and the annotators call the node they are at; looked at before other names.
_AT_WORK = ("node", "n", "meta")
_NEVER_SWALLOWED = (KeyboardInterrupt, MemoryError, torch.OutOfMemoryError, UsageError)
#: A longer list of nodes in a local variable says nothing about one of them.
_FEW = 8


def chain(error: BaseException) -> list[BaseException]:
    """Return an exception and everything it was raised from or during, the root first.

    ExecuTorch and fx wrap exceptions with ``raise Exception(message) from error``.
    """
    found: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending:
        link = pending.pop()
        if link is not None and link not in found:
            found.append(link)
            pending += [link.__context__, link.__cause__]
    return found[::-1]


def fatal(error: BaseException) -> BaseException | None:
    """Return what must reach the user among the causes of an exception: no memory, an interrupt, wrong use."""
    return next((link for link in chain(error) if isinstance(link, _NEVER_SWALLOWED)), None)


def is_fatal(error: BaseException) -> bool:
    """Tell whether an exception must reach the user."""
    return fatal(error) is not None


def reason(error: BaseException) -> str:
    """Return one line that says what an exception was at its root."""
    root = chain(error)[0]
    text = next(iter(str(root).strip().splitlines()), "")
    return f"{type(root).__name__}: {text}" if text else type(root).__name__


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


def uproot(graph_module: GraphModule) -> None:
    """Take the planted names off a graph that a run returned, nested graphs included."""
    for module in graph_module.modules():
        if isinstance(module, GraphModule):
            for node in module.graph.nodes:
                node.meta.pop(ORIGIN_KEY, None)


def suspects(error: BaseException) -> list[str]:
    """Return the planted names of the nodes an exception may be about, the likeliest first; call it while planted.

    Those are the nodes that local variables of the traceback hold: the root exception's before its wrappers', inner
    frames before outer ones.
    """
    names: dict[str, None] = {}
    for link in chain(error):
        for frame in frames(link):
            held = frame.f_locals
            for value in (held[name] for name in sorted(held, key=lambda name: name not in _AT_WORK)):
                names.update(dict.fromkeys(_origins(value)))
    return list(names)


def _with_callers(graph_module: GraphModule, caller: str | None) -> Iterator[tuple[Node, str]]:
    for node in graph_module.graph.nodes:
        yield node, caller or node.name
        if node.op == "get_attr":
            nested = _attribute(graph_module, node.target)
            if isinstance(nested, GraphModule):
                users = next(iter(node.users), node)
                yield from _with_callers(nested, caller or users.name)


def _attribute(owner: Any, target: Any) -> Any:
    for part in str(target).split("."):
        owner = getattr(owner, part, None)
    return owner


def frames(error: BaseException) -> list[FrameType]:
    """Return the frames of an exception's own traceback, the innermost first."""
    return [frame for frame, _ in walk_tb(error.__traceback__)][::-1]


def _origins(value: Any) -> Iterator[str]:
    if isinstance(value, (list, tuple)) and len(value) <= _FEW:
        for item in value:
            if isinstance(item, Node):
                yield from _origins(item)
    elif isinstance(value, Node) or type(value).__name__ == "NodeMetadata":
        meta = value.meta if isinstance(value, Node) else value.data
        if isinstance(name := meta.get(ORIGIN_KEY), str):
            yield name
