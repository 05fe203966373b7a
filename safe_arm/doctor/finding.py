"""What the doctor found out about one tool."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

EVERY_TARGET = ("vgf", "tosa", "ethos-u")
#: How long a tool may take; importing ExecuTorch takes seconds on a good day.
SECONDS = 180


class State(str, Enum):
    """Whether a tool does its work here."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    """One tool and how it is.

    Attributes:
        name: the tool, as people call it.
        state: whether it ran.
        version: its own words, or its package's; empty if unknown.
        needed_for: what does not work without it.
        needed_by: the targets that need it, by their first word (``vgf``, ``tosa``, ``ethos-u``); empty if none does.
        detail: what was run and what came of it.
        fix: the command that mends it, or that spares the user a surprise; empty if there is nothing to do.
        output: what it printed, for ``-v``.
    """

    name: str
    state: State
    version: str
    needed_for: str
    needed_by: tuple[str, ...] = ()
    detail: str = ""
    fix: str = ""
    output: str = ""

    def blocks(self, target: str | None) -> bool:
        """Say whether this stands in the way of a target.

        Args:
            target: one of ``TARGETS``; None asks about what every target needs, and about anything a target needs that
                is installed but does not run.
        """
        if self.state is State.OK or not self.needed_by:
            return False
        if target is not None:
            return concerns(target, self.needed_by)
        return self.state is State.BROKEN or self.needed_by == EVERY_TARGET


def concerns(target: str | None, needed_by: tuple[str, ...]) -> bool:
    """Say whether what some targets need is of interest to who asks about one of them, or with None about all.

    Args:
        target: one of ``TARGETS``, or None.
        needed_by: the targets' first words.
    """
    return target is None or target.startswith(needed_by)
