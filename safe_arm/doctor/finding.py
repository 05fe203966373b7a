"""The result of the probe of one tool."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from safe_arm.core.processes import Ended

EVERY_TARGET = ("vgf", "tosa", "ethos-u")
#: Time limit of a tool; an import of ExecuTorch takes seconds at best.
SECONDS = 180


class State(str, Enum):
    """The state of a tool on this machine."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True)
class Probed:
    """The result of a probe; the attributes are those of ``Finding``."""

    state: State
    version: str = ""
    detail: str = ""
    fix: str = ""
    output: str = ""


def ran(ended: Ended, version: str, detail: str, broken: str, fix: str) -> Probed:
    """Return the result of a run.

    Args:
        ended: the run.
        version: the tool's.
        detail: the detail if it is good.
        broken, fix: the beginning of the detail, and the command, if it is not.
    """
    if ended.good:
        return Probed(State.OK, version, detail, output=ended.output)
    detail = f"{broken}: {ended.last_words}"
    return Probed(State.BROKEN, version, detail, fix, ended.output)


@dataclass(frozen=True)
class Finding:
    """One tool and its state.

    Attributes:
        name: the tool, as people call it.
        state: the result of running it.
        version: the version it prints, or its package's; empty if unknown.
        needed_for: the work that needs it.
        needed_by: the targets that need it, by their first word (``vgf``, ``tosa``, ``ethos-u``); empty if none does.
        detail: the run and its result in words.
        fix: the command that fixes it, or that prevents a surprise; empty if there is nothing to do.
        output: its output, for ``-v``.
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
        """Tell whether this blocks a target.

        Args:
            target: one of ``TARGETS``; None stands for all: a tool blocks them if every target needs it, or if one does
                and it is installed but does not run.
        """
        if self.state is State.OK or not self.needed_by:
            return False
        if target is not None:
            return concerns(target, self.needed_by)
        return self.state is State.BROKEN or self.needed_by == EVERY_TARGET


def concerns(target: str | None, needed_by: tuple[str, ...]) -> bool:
    """Tell whether a tool that some targets need concerns one target, or with None any target.

    Args:
        target: one of ``TARGETS``, or None.
        needed_by: the targets' first words.
    """
    return target is None or target.startswith(needed_by)
