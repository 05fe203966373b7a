"""The partitioning that a thread is at: ExecuTorch's partitioner and its checks take no argument of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import Node


@dataclass(frozen=True)
class Partitioning:
    """One partitioning of a program.

    Attributes:
        method: the method whose program is partitioned; ``forward`` where nobody says.
        accepted: nodes that the INT profile's quantisation check accepts.
        question: the ``partitioner.proposal.Question`` that stock's partitioner is asked; None outside of one.
        shelf: the ``partitioner.shelf.Shelf`` of what trials made and ships; None where nothing was made.
        is_over: whether the shelf is what the last partitioning left, which nobody closes.
    """

    method: str = "forward"
    accepted: frozenset[Node] = frozenset()
    question: Any = None
    shelf: Any = None
    is_over: bool = False


_NONE = Partitioning()
_partitioning: ContextVar[Partitioning] = ContextVar(
    "safe_arm_partitioning", default=_NONE
)


def current_partitioning() -> Partitioning:
    """Return the record of this thread's partitioning."""
    return _partitioning.get()


@contextmanager
def partitioning(record: Partitioning) -> Iterator[Partitioning]:
    """Let a record be that of this thread's partitioning while the block runs."""
    token = _partitioning.set(record)
    try:
        yield record
    finally:
        _partitioning.reset(token)


def leave_on_shelf(shelf: Any) -> None:
    """Leave what a partitioning made for what comes next in this thread, where nobody waits for it."""
    _partitioning.set(replace(_partitioning.get(), shelf=shelf, is_over=True))
