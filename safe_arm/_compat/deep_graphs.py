"""Fresh threads for the stock pass that recurses along a graph, two frames for each operator.

``RemovePermutesAroundElementwiseOps.visit`` reaches Python's limit of 1,000 frames on a residual net of some
240 blocks. Python counts frames by thread, so in our delegates the pass goes on in a fresh thread every so often. The
limit is not changed, and the C stack of each thread has room for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any

from executorch.backends.transforms.remove_permutes_around_elementwise_ops import (
    RemovePermutesAroundElementwiseOps,
)

from safe_arm._compat.upstream import ExportPass
from safe_arm.core.context import bound

#: Maximum depth of visits in one thread.
LEVELS = 100

_level: ContextVar[int] = ContextVar("safe_arm_visit_level", default=0)


def in_threads(a_pass: ExportPass) -> ExportPass:
    """Let a pass of the recursive class, and any other as it is, go on in a fresh thread every ``LEVELS`` levels."""
    if not isinstance(a_pass, RemovePermutesAroundElementwiseOps):
        return a_pass
    recursive: Any = a_pass
    stock = recursive.visit

    def visit(*args: Any, **kwargs: Any) -> bool:
        level = _level.get() + 1
        with bound(_level, level):
            if level % LEVELS:
                return stock(*args, **kwargs)
            return _in_fresh_thread(stock, *args, **kwargs)

    recursive.visit = visit
    return a_pass


def _in_fresh_thread(function: Callable[..., bool], *args: Any, **kwargs: Any) -> bool:
    with ThreadPoolExecutor(1) as fresh:
        return fresh.submit(copy_context().run, function, *args, **kwargs).result()
