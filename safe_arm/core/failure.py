"""A failed lowering: the pass that raised, the operators it was working on, its message."""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch.fx.passes.operator_support import OperatorSupportBase

from safe_arm.core.errors import InvariantError, ToolError
from safe_arm.core.exceptions import Caught
from safe_arm.core.origins import suspects
from safe_arm.core.tool_input import keep

#: Maximum number of characters of a message that a report quotes.
QUOTED = 300
#: Maximum number of operators that an exception may accuse.
SUSPECTS = 4

_FULL = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EACCES)
)
#: The attribute by which an exception says in which pass it was raised.
_PASS = "safe_arm_pass"
_BACKEND = "executorch.backends.arm"
#: The node that an interpreter was at, as torch adds it to a message.
_EXECUTED = re.compile(r"While executing %(\w+)")


@dataclass(frozen=True)
class Failure:
    """The failure of a trial lowering.

    Attributes:
        where: the pass, node visitor or tool that failed.
        message: the exception's class and message on one line.
        suspects: the original graph's nodes it was working on, the likeliest first; empty if unknown.
        environment: the machine is at fault (a full disk, for one), no operator is.
        tool: the tool's error, with its input and the command that repeats it; None if no tool failed.
        details: the traceback, for a repro.
        stage: the stage that found it: ``"preflight"`` by lowering, ``"converter"`` by the tool that compiles for the
            target, ``"verify"`` by running what was lowered.
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
        """The key by which two failures are the same one: where, and the message without names and numbers."""
        return self.where, re.sub(r"[\w.]*\d[\w.]*", "#", self.message)


def note_pass(error: BaseException, name: str) -> None:
    """Let an exception say in which pass it was raised, unless it says so already."""
    if not hasattr(error, _PASS):
        setattr(error, _PASS, name)


def failure_of(caught: Caught, names: Mapping[str, str] | None = None) -> Failure:
    """Read an exception: where it was raised, and the nodes that were being worked on.

    Args:
        caught: the exception that the lowering raised.
        names: for names in the lowered graph, the original node; a tool's message may mention them.
    """
    tool = caught.first(ToolError)
    broken = caught.first(InvariantError)
    broken_by = broken.broken_by if broken else ""
    root = caught.root
    failure = Failure(
        where=broken_by or _where(caught),
        message=_message_of(caught),
        suspects=tuple(suspects(caught)[:SUSPECTS]),
        environment=isinstance(root, OSError) and root.errno in _FULL,
        details="".join(traceback.format_exception(caught.causes[-1], limit=-6)),
        silent=bool(broken_by),
    )
    if tool is None:
        return failure
    words = re.findall(r"[A-Za-z_]\w*", str(tool))
    mentioned = [names[word] for word in words if names and word in names]
    return replace(
        failure,
        where=tool.tool,
        message=quoted(tool),
        suspects=tuple(mentioned[:SUSPECTS]),
        tool=tool,
        stage="converter",
    )


def quoted(error: BaseException) -> str:
    """Return an exception's class and message on one line of at most ``QUOTED`` characters."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}..."


def _message_of(caught: Caught) -> str:
    """Return the root's class and message; where it has none, the node that was being executed."""
    root = caught.root
    if str(root):
        return quoted(root)
    message = f"{type(root).__name__} without a message"
    for link in caught.causes:
        executed = _EXECUTED.search(str(link))
        if executed:
            return f"{message}, while executing {executed[1]}"
    return message


def _where(caught: Caught) -> str:
    """Return the pass, node visitor or check that raised; what no boundary noted is told from the frames."""
    for link in caught.causes:
        if noted := getattr(link, _PASS, ""):
            return str(noted)
    for frame in caught.frames:
        actor = frame.f_locals.get("self")
        name = type(actor).__name__
        if name.endswith("Pass") or hasattr(type(actor), "define_node"):
            return name
        if isinstance(actor, OperatorSupportBase):
            return name
    for frame in caught.frames:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(_BACKEND):
            return f"{module.removeprefix(f'{_BACKEND}.')}.{frame.f_code.co_name}"
    return "the lowering"
