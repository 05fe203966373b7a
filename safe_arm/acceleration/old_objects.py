"""Leave what was there before to itself while objects are collected.

Tracing makes objects by the hundred thousand, and Python's garbage collection then walks through all that live, torch's
modules and the user's net among them: a tenth of a lowering. What lives when a step begins is left out until it ends.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def left_alone() -> Iterator[None]:
    """Keep the garbage collection from objects that live already, while the block runs; blocks are not nested.

    This has no effect where the process kept some from it before: they could not be told apart afterwards.
    """
    if _some_are():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@cache
def _some_are() -> bool:
    """Tell whether the process keeps objects from the collector itself; asked once, because it counts them all."""
    return gc.get_freeze_count() > 0
