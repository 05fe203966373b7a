"""The shortcuts that a thread takes on its way to a delegate, and what they remember on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakSet

from torch._ops import OperatorBase
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram


@dataclass(frozen=True)
class Shortcuts:
    """What is made short in a thread; stock's way where nothing is.

    Attributes:
        functional: programs that need no decomposition to be functional; None outside of ``decompositions.merged``.
        composite: the operators that decompose themselves, once they have been looked for.
        fake_values: what an operator computes of what its tensors look like.
        signatures: the tables of graph signatures that were looked into.
        last_traced: the ``idle_passes.Traced`` that was traced last.
        question: the ``idle_passes.Question`` that a pass is asked.
        recorder: returns the history of a node, in place of torch's.
        late_code: whether a graph module gets its code when somebody asks for it.
        whole_constants: whether long lists of numbers stay in one piece.
        cheap_cuts: whether a delegate is cut out at its own price.
        cutting: whether one is being cut out so.
    """

    functional: WeakSet[ExportedProgram] | None = None
    composite: list[frozenset[OperatorBase]] | None = None
    fake_values: dict[tuple[Any, ...], FakeTensor] | None = None
    signatures: dict[tuple[int, Callable[..., Any]], Any] | None = None
    last_traced: Any = None
    question: Any = None
    recorder: Callable[..., Any] | None = None
    late_code: bool = False
    whole_constants: bool = False
    cheap_cuts: bool = False
    cutting: bool = False


_NONE = Shortcuts()
_shortcuts: ContextVar[Shortcuts] = ContextVar("safe_arm_shortcuts", default=_NONE)


def shortcuts() -> Shortcuts:
    """Return what this thread makes short."""
    return _shortcuts.get()


@contextmanager
def taking(**more: Any) -> Iterator[None]:
    """Take further shortcuts, in this thread, while the block runs.

    Args:
        more: attributes of ``Shortcuts`` and their values; the others stay as they are.
    """
    token = _shortcuts.set(replace(_shortcuts.get(), **more))
    try:
        yield
    finally:
        _shortcuts.reset(token)
