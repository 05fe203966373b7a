"""The record of a thread's current partitioning, which ExecuTorch's calls cannot pass on as an argument."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import Node

from safe_arm.core.context import bound


@dataclass(frozen=True)
class Partitioning:
    """One partitioning of a program.

    Attributes:
        method: the method whose program is partitioned; ``forward`` where nobody says.
        accepted: nodes that the INT profile's quantisation check accepts.
        question: the ``partitioner.proposal.Question`` that stock's partitioner is asked; None outside of one.
        shelf: the ``partitioner.shelf.Shelf`` of the trials' results that ship; None if there are none.
        is_over: whether the shelf is left from the last partitioning; nobody closes that.
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


def partitioning(record: Partitioning) -> AbstractContextManager[None]:
    """Let a record be that of this thread's partitioning while the block runs."""
    return bound(_partitioning, record)


def leave_on_shelf(shelf: Any) -> None:
    """Leave the results of a partitioning for the next step in this thread, without a block that ends."""
    _partitioning.set(replace(_partitioning.get(), shelf=shelf, is_over=True))
