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
from typing import Any, Protocol, runtime_checkable

from safe_arm._compat.upstream import ExportPass
from safe_arm.core.context import bound

#: Maximum depth of visits in one thread.
LEVELS = 100

_MODULE = "executorch.backends.transforms.remove_permutes_around_elementwise_ops"
#: The class of the pass; None before 1.4, which has none.
RECURSIVE: type[Any] | None = None
if find_spec(_MODULE):
    RECURSIVE = import_module(_MODULE).RemovePermutesAroundElementwiseOps


class _Recursive(Protocol):
    """The stock pass."""

    visit: Callable[..., bool]


@runtime_checkable
class _Maker(Protocol):
    """A pass that makes others."""

    make_fusion_pass: Callable[[], ExportPass | None]


_level: ContextVar[int] = ContextVar("safe_arm_visit_level", default=0)


def in_threads(a_pass: ExportPass) -> ExportPass:
    """Let the recursive pass go on in a fresh thread every ``LEVELS`` levels, also where another pass makes it.

    A ``PropagateViewCopyPermute…Pass`` makes one for each of its rounds. Any other pass stays as it is.
    """
    if RECURSIVE is None:
        return a_pass
    if isinstance(a_pass, RECURSIVE):
        _visit_in_threads(a_pass)
    elif isinstance(a_pass, _Maker):
        stock = a_pass.make_fusion_pass

        def make_fusion_pass() -> ExportPass | None:
            fusion = stock()
            return None if fusion is None else in_threads(fusion)

        a_pass.make_fusion_pass = make_fusion_pass
    return a_pass


def _visit_in_threads(recursive: _Recursive) -> None:
    stock = recursive.visit

    def visit(*args: Any, **kwargs: Any) -> bool:
        level = _level.get() + 1
        with bound(_level, level):
            if level % LEVELS:
                return stock(*args, **kwargs)
            with ThreadPoolExecutor(1) as fresh:
                run = copy_context().run
                return fresh.submit(run, stock, *args, **kwargs).result()

    recursive.visit = visit
