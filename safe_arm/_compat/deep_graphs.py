"""Room for stock passes that recurse along a graph, a frame for each operator.

``RemovePermutesAroundElementwiseOps.visit`` does (1.5): on a residual net of some 240 blocks it hits Python's limit of
1,000 frames. From Python 3.11 on a call from Python to Python takes no C stack, so the limit may be any number.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Frames for each node of the graph that is handed in: passes take operators apart.
FRAMES = 20

_lock = threading.Lock()
_wanted: list[int] = []
_before = 0


@contextmanager
def deep(nodes: int) -> Iterator[None]:
    """Let Python recurse through a graph while the block runs; before Python 3.11 nothing changes.

    The limit holds for all threads, so it goes back when the last block is left.

    Args:
        nodes: how many nodes the graph has.
    """
    if sys.version_info < (3, 11):
        yield
        return
    frames = FRAMES * nodes
    _change(_wanted.append, frames)
    try:
        yield
    finally:
        _change(_wanted.remove, frames)


def _change(change: Callable[[int], None], frames: int) -> None:
    global _before
    with _lock:
        if not _wanted:
            _before = sys.getrecursionlimit()
        change(frames)
        sys.setrecursionlimit(_before + max(_wanted, default=0))
