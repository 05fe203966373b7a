"""Where corrections made a difference, noted while a delegate is lowered."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar

from torch.fx import Node

from safe_arm._compat.upstream import ArmPass
from safe_arm.core.context import bound
from safe_arm.core.origins import origin

#: The attribute of a pass that holds the correction it belongs to.
CORRECTION = "safe_arm_correction"
#: Correction, known issue, and the operator of the user's graph.
Note = tuple[str, str, str]
_notes: ContextVar[list[Note] | None] = ContextVar("safe_arm_applied", default=None)


def noting(notes: list[Note]) -> AbstractContextManager[None]:
    """Collect, in this thread, where corrections make a difference."""
    return bound(_notes, notes)


def applied(corrected_pass: ArmPass, node: Node) -> None:
    """Note that a pass changed what becomes of a node; without a correction it belongs to, nothing is noted."""
    notes, correction = _notes.get(), getattr(corrected_pass, CORRECTION, None)
    if notes is not None and correction is not None:
        notes.append((correction.name, correction.issue, origin(node).rsplit(".", 1)[-1]))
