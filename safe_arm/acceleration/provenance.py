"""Share or drop the history of each node, which torch copies in every re-trace.

Each re-trace deep-copies the whole history of each node and adds to it (``torch.fx.traceback.NodeSource``), so the
cost grows with the number of passes that ran before. Nobody changes a history, so copies can be ``shared``. The
backend reads none of it, so in a delegate it can be ``dropped``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch.fx.traceback as fx_traceback
from torch.fx import GraphModule, Node

from safe_arm.acceleration.shortcuts import shortcuts, taking
from safe_arm.core.island import all_nodes

HISTORY_KEY = "from_node"

#: In a marker: provenance is wanted as torch records it.
KEEP = "keep-provenance"

Recording = AbstractContextManager[None]


def shared() -> Recording:
    """Record histories without copying them, in this thread, while the block runs."""
    return taking(recorder=_extended)


def dropped(graph_module: GraphModule) -> Recording:
    """Forget the history of a graph's nodes, and record none in this thread while the block runs.

    The user's stack traces and module names stay.
    """
    for node in all_nodes(graph_module):
        node.meta.pop(HISTORY_KEY, None)
    return taking(recorder=lambda node, pass_name: [])


def asking_recorder(stock: Callable[..., Recording]) -> Callable[..., Recording]:
    """Wrap torch's recorder of histories: this thread's own recorder replaces it, if there is one."""

    def set_current_meta(node: Node, pass_name: str = "") -> Recording:
        recorder = shortcuts().recorder
        if recorder is None:
            return stock(node, pass_name)
        return _recorded(node, recorder(node, pass_name))

    return set_current_meta


def _extended(node: Node, pass_name: str) -> list[fx_traceback.NodeSource]:
    source = fx_traceback.NodeSource(
        None, pass_name, fx_traceback.NodeSourceAction.CREATE
    )
    source.node_info = source.NodeInfo(
        name=node.name, target=str(node.target), graph_id=id(node.graph)
    )
    source.from_node = node.meta.get(HISTORY_KEY, [])
    return [source]


@contextmanager
def _recorded(node: Node, history: list[fx_traceback.NodeSource]) -> Iterator[None]:
    """Do what torch's recorder does, with a history of our making."""
    if not (fx_traceback.should_preserve_node_meta and node.meta):
        yield
        return
    saved = fx_traceback.current_meta
    try:
        meta = dict(node.meta)
        meta.pop(HISTORY_KEY, None)
        if history:
            meta[HISTORY_KEY] = history
        fx_traceback.current_meta = meta
        yield
    finally:
        fx_traceback.current_meta = saved
