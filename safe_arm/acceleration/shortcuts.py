"""The shortcuts that a thread takes on its way to a delegate, and their caches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakSet

from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram

from safe_arm.core.context import bound


@dataclass(frozen=True)
class Shortcuts:
    """The shortcuts that are on in a thread; by default all are off, as in stock.

    Attributes:
        functional: programs that need no decomposition to be functional; None outside of ``decompositions.merged``.
        materialized: not empty once torch's table of operators is filled.
        fake_values: the cache of operators' values, by properties of their inputs.
        last_traced: the graph module that was traced last, and its parts at that time.
        recorder: returns the history of a node, in place of torch's.
        late_code: whether the code of a graph module is generated when it is first read.
        cheap_cuts: whether the cost of cutting out a delegate depends on the delegate alone.
    """

    functional: WeakSet[ExportedProgram] | None = None
    materialized: list[bool] | None = None
    fake_values: dict[tuple[Any, ...], FakeTensor] | None = None
    last_traced: list[Any] | None = None
    recorder: Callable[..., Any] | None = None
    late_code: bool = False
    cheap_cuts: bool = False


_NONE = Shortcuts()
_shortcuts: ContextVar[Shortcuts] = ContextVar("safe_arm_shortcuts", default=_NONE)


def shortcuts() -> Shortcuts:
    """Return this thread's shortcuts."""
    return _shortcuts.get()


def any_taken() -> bool:
    """Tell whether this thread takes any shortcut."""
    return _shortcuts.get() is not _NONE


def taking(**more: Any) -> AbstractContextManager[None]:
    """Take further shortcuts, in this thread, while the block runs.

    Args:
        more: attributes of ``Shortcuts`` and their values; the others stay as they are.
    """
    return bound(_shortcuts, replace(_shortcuts.get(), **more))
