"""What a failed lowering died of: the pass, the operators it was working on, its message."""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from torch.fx.passes.operator_support import OperatorSupportBase

from safe_arm.core.errors import InvariantError, ToolError
from safe_arm.core.exceptions import Caught, frames
from safe_arm.core.origins import suspects
from safe_arm.core.tool_input import keep

#: How much of a message a report quotes, in characters.
QUOTED = 300
#: How many operators an exception may accuse.
SUSPECTS = 4

_FULL = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EACCES)
)
#: The attribute by which an exception says in which pass it was raised.
_PASS = "safe_arm_pass"


@dataclass(frozen=True)
class Failure:
    """What a trial lowering died of.

    Attributes:
        where: the pass, node visitor or tool that failed.
        message: the exception's class and message on one line.
        suspects: the original graph's nodes it was working on, the likeliest first; empty if it does not show.
        environment: the machine is at fault (a full disk, for one), no operator is.
        tool: the tool's error, with its input and the command that repeats it; None if no tool failed.
        details: the traceback, for a repro.
        stage: what found it: ``"preflight"`` by lowering, ``"converter"`` by the tool that compiles for the target,
            ``"verify"`` by running what was lowered.
        culprits: the original graph's nodes that were measured to be wrong, and the reason for each group of them.
        silent: the backend itself raises nothing; an invariant between its passes was broken.
    """

    where: str
    message: str
    suspects: tuple[str, ...] = ()
    environment: bool = False
    tool: ToolError | None = None
    details: str = ""
    stage: str = "preflight"
    culprits: tuple[tuple[frozenset[str], str], ...] = ()
    silent: bool = False

    @property
    def command(self) -> str:
        """A shell command that repeats a tool's failure, its input kept for it; empty if no tool failed."""
        return keep(self.tool) if self.tool else ""

    @property
    def kind(self) -> tuple[str, str]:
        """What makes two failures one: where, and the message without names and numbers."""
        return self.where, re.sub(r"[\w.]*\d[\w.]*", "#", self.message)


def note_pass(error: BaseException, name: str) -> None:
    """Let an exception say in which pass it was raised, unless it says so already."""
    if not hasattr(error, _PASS):
        setattr(error, _PASS, name)


def failure_of(caught: Caught, names: Mapping[str, str] | None = None) -> Failure:
    """Read an exception: where it was raised, and the nodes that were being worked on.

    Args:
        caught: what the lowering raised.
        names: for names in the lowered graph, the original node; a tool's message may mention them.
    """
    tool = next((link for link in caught.causes if isinstance(link, ToolError)), None)
    broken = next(
        (link.broken_by for link in caught.causes if isinstance(link, InvariantError)),
        "",
    )
    found = _mentioned(str(tool), names or {}) if tool else suspects(caught)
    root = caught.root
    return Failure(
        tool.tool if tool else broken or _where(caught),
        quoted(tool or root),
        tuple(found)[:SUSPECTS],
        isinstance(root, OSError) and root.errno in _FULL,
        tool,
        "".join(traceback.format_exception(caught.causes[-1], limit=-6)),
        "converter" if tool else "preflight",
        silent=bool(broken),
    )


def quoted(error: BaseException) -> str:
    """Return an exception's class and message on one line of at most ``QUOTED`` characters."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}..."


def _where(caught: Caught) -> str:
    """Return the pass, node visitor or check that raised; what no boundary noted is told from the frames."""
    noted = next(
        (name for link in caught.causes if (name := getattr(link, _PASS, ""))), ""
    )
    held = [frame for link in caught.causes for frame in frames(link)]
    for frame in () if noted else held:
        actor = frame.f_locals.get("self")
        name = type(actor).__name__
        if (
            name.endswith("Pass")
            or hasattr(type(actor), "define_node")
            or isinstance(actor, OperatorSupportBase)
        ):
            return name
    for frame in () if noted else held:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("executorch.backends.arm"):
            return f"{module.removeprefix('executorch.backends.arm.')}.{frame.f_code.co_name}"
    return noted or "the lowering"


def _mentioned(message: str, names: Mapping[str, str]) -> list[str]:
    return [
        names[word] for word in re.findall(r"[A-Za-z_]\w*", message) if word in names
    ]
