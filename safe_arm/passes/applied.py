"""Where corrections made a difference, noted while a delegate is lowered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch.fx import Node

from safe_arm.core.origins import ORIGIN_KEY

#: The attribute of a pass that holds the correction it belongs to.
CORRECTION = "safe_arm_correction"
#: Correction, known issue, and the operator of the user's graph.
Note = tuple[str, str, str]
_notes: ContextVar[list[Note] | None] = ContextVar("safe_arm_applied", default=None)


@contextmanager
def noting(notes: list[Note]) -> Iterator[None]:
    """Collect, in this thread, where corrections make a difference."""
    token = _notes.set(notes)
    try:
        yield
    finally:
        _notes.reset(token)


def applied(corrected_pass: Any, node: Node) -> None:
    """Note that a pass changed what becomes of a node; without a correction it belongs to, nothing is noted."""
    notes, correction = _notes.get(), getattr(corrected_pass, CORRECTION, None)
    if notes is not None and correction is not None:
        origin = str(node.meta.get(ORIGIN_KEY, node.name)).rsplit(".", 1)[-1]
        notes.append((correction.name, correction.issue, origin))
