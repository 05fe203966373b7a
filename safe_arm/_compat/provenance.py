"""Where a node came from, pass by pass: torch records it for every node of every re-trace, and we can spare that.

Each re-trace deep-copies the whole history of each node and adds to it (``torch.fx.traceback.NodeSource``), so the
cost grows with the number of passes that ran before. The backend reads none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch.fx.traceback as fx_traceback
from torch.fx import GraphModule, Node

HISTORY_KEY = "from_node"

_dropping: ContextVar[bool] = ContextVar("safe_arm_dropping_provenance", default=False)


@contextmanager
def dropped(graph_module: GraphModule) -> Iterator[None]:
    """Forget the history of a graph's nodes and record none, in this thread, while the block runs.

    The user's stack traces and module names stay.
    """
    for module in graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            node.meta.pop(HISTORY_KEY, None)
    token = _dropping.set(True)
    try:
        yield
    finally:
        _dropping.reset(token)


def install() -> Callable[[], None]:
    """Let torch's recorder ask whether history is wanted; it records as ever unless ``dropped``.

    Returns:
        What puts the stock recorder back.
    """
    stock = fx_traceback.set_current_meta

    def set_current_meta(node: Node, *args: Any, **kwargs: Any) -> AbstractContextManager[None]:
        return _without_history(node) if _dropping.get() else stock(node, *args, **kwargs)

    fx_traceback.set_current_meta = set_current_meta
    return lambda: setattr(fx_traceback, "set_current_meta", stock)


@contextmanager
def _without_history(node: Node) -> Iterator[None]:
    if not (fx_traceback.should_preserve_node_meta and node.meta):
        yield
        return
    saved = fx_traceback.current_meta
    try:
        fx_traceback.current_meta = {key: value for key, value in node.meta.items() if key != HISTORY_KEY}
        yield
    finally:
        fx_traceback.current_meta = saved
