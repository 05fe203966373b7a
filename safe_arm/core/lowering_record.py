"""The record of a thread's current lowering: its settings, and its results besides the bytes.

ExecuTorch's backends and passes take no argument of ours, and return nothing but bytes. Their settings and their other
results are in one record, which belongs to one thread of control.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

from safe_arm.core.context import bound
from safe_arm.core.device_cost import VelaSummary

#: Correction, known issue, and the operator of the user's graph.
Note = tuple[str, str, str]
#: The shape of each node of a graph, by name.
Shapes = dict[str, torch.Size]
#: A logger's name and what it logged.
Message = tuple[str, str]


@dataclass(frozen=True)
class Lowering:
    """One lowering of one delegate; its lists are filled while it runs.

    Attributes:
        manager: makes the pass manager that lowers the delegate; None until its backend begins.
        time_limit: seconds that one run of Vela or model-converter may take; None for no limit, as in stock.
        logged: messages that ExecuTorch has logged in this session and need not repeat; None lets it repeat them.
        origins: for nodes of the final graph, by name, the node of the user's graph that they come from.
        shapes: for each graph, the main one first, then those of its control flow, the shapes of its nodes.
        flatbuffers: every TOSA graph that a backend hands to its compiler or ships.
        notes: where corrections made a difference.
        printed: what Vela prints, run by run.
        summaries: the summaries of each run of Vela.
        breaches: errors for which the delegate must not ship; the first is raised when its backend is done.
    """

    manager: Callable[..., Any] | None = None
    time_limit: float | None = None
    logged: set[Message] | None = None
    origins: dict[str, str] = field(default_factory=dict)
    shapes: list[Shapes] = field(default_factory=list)
    flatbuffers: list[bytes] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    summaries: list[VelaSummary] = field(default_factory=list)
    breaches: list[Exception] = field(default_factory=list)


_lowering: ContextVar[Lowering | None] = ContextVar("safe_arm_lowering", default=None)


def current_lowering() -> Lowering:
    """Return the record of this thread's lowering; where there is none, one that nobody reads."""
    return _lowering.get() or Lowering()


@contextmanager
def lowering(record: Lowering) -> Iterator[Lowering]:
    """Let a record be that of this thread's lowering while the block runs.

    Args:
        record: a new one, or the current one with some attributes replaced, which keeps its lists.
    """
    with bound(_lowering, record):
        yield record


def breach(error: Exception) -> None:
    """Note that what is being lowered in this thread must not become a delegate; raise at once if none is.

    Args:
        error: raised when the backend is done with the delegate, if it does not raise by itself.
    """
    record = current_lowering()
    if record.manager is None:
        raise error
    record.breaches.append(error)
