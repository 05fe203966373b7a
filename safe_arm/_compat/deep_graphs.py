"""Fresh threads for the stock pass that recurses along a graph, two frames for each operator.

``RemovePermutesAroundElementwiseOps.visit`` (1.4 on) reaches Python's limit of 1,000 frames on a residual net of some
240 blocks. Python counts frames by thread, so in our delegates the pass goes on in a fresh thread every so often. The
limit is not changed, and the C stack of each thread has room for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from safe_arm._compat.upstream import ExportPass
from safe_arm.core.context import bound

#: Maximum depth of visits in one thread.
LEVELS = 100

_MODULE = "executorch.backends.transforms.remove_permutes_around_elementwise_ops"
#: The class of the pass; None before 1.4, which has none.
RECURSIVE: type | None = None
if find_spec(_MODULE):
    RECURSIVE = import_module(_MODULE).RemovePermutesAroundElementwiseOps

_level: ContextVar[int] = ContextVar("safe_arm_visit_level", default=0)


def in_threads(a_pass: ExportPass) -> ExportPass:
    """Let a pass of the recursive class, and any other as it is, go on in a fresh thread every ``LEVELS`` levels."""
    if RECURSIVE is None or not isinstance(a_pass, RECURSIVE):
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
