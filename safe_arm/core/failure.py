"""What a failed lowering died of: the pass, the operators it held in its hands, what it said."""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType

from torch.fx.passes.operator_support import OperatorSupportBase

from safe_arm.core.errors import InvariantError, MissingToolError, ToolError
from safe_arm.core.origins import chain, fatal, frames, suspects
from safe_arm.core.tool_input import keep

#: How much of a message a report quotes, in characters.
QUOTED = 300
#: How many operators an exception may accuse.
SUSPECTS = 4

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EACCES))


@dataclass(frozen=True)
class Failure:
    """What a trial lowering died of.

    Attributes:
        where: the pass, node visitor or tool that failed.
        said: the exception's class and message on one line.
        suspects: the original graph's nodes it was working on, the likeliest first; empty if it does not show.
        environment: the machine is at fault (a full disk, a missing tool), no operator is.
        command: a shell command that repeats a tool's failure, else empty.
        details: the traceback, for a repro.
        stage: what found it: ``"preflight"`` by lowering, ``"converter"`` by the tool behind the backend,
            ``"verify"`` by running what was lowered.
        culprits: the original graph's nodes that were measured to be wrong, and the reason for each group of them.
        silent: the backend itself says nothing; an invariant between its passes was broken.
    """

    where: str
    said: str
    suspects: tuple[str, ...] = ()
    environment: bool = False
    command: str = ""
    details: str = ""
    stage: str = "preflight"
    culprits: tuple[tuple[frozenset[str], str], ...] = ()
    silent: bool = False

    @property
    def kind(self) -> tuple[str, str]:
        """What makes two failures one: where, and what was said without names and numbers."""
        return self.where, re.sub(r"[\w.]*\d[\w.]*", "#", self.said)


def failure_of(error: BaseException, names: Mapping[str, str] | None = None) -> Failure:
    """Read an exception: find the pass, and the nodes in the locals of the frames nearest to its cause.

    Args:
        error: what the lowering raised.
        names: for names in the lowered graph, the original node; a tool's message may mention them.

    Raises:
        MemoryError, KeyboardInterrupt, UsageError: one of them is behind ``error``; they are never swallowed.
    """
    if (link := fatal(error)) is not None:
        raise link
    causes = chain(error)
    tool = next((link for link in causes if isinstance(link, ToolError)), None)
    broken = next((link.broken_by for link in causes if isinstance(link, InvariantError)), "")
    found = _mentioned(str(tool), names or {}) if tool else suspects(error)
    root = causes[0]
    return Failure(
        tool.tool if tool else broken or _where([frame for link in causes for frame in frames(link)]),
        said(root if tool is None or isinstance(tool, MissingToolError) else tool),
        tuple(found)[:SUSPECTS],
        isinstance(tool, MissingToolError) or (isinstance(root, OSError) and root.errno in _FULL),
        keep(tool) if tool else "",
        "".join(traceback.format_exception(error, limit=-6)),
        "converter" if tool else "preflight",
        silent=bool(broken),
    )


def said(error: BaseException) -> str:
    """Return an exception's class and message on one line of at most ``QUOTED`` characters."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}..."


def _where(held: list[FrameType]) -> str:
    for frame in held:
        actor = frame.f_locals.get("self")
        name = type(actor).__name__
        if name.endswith("Pass") or hasattr(type(actor), "define_node") or isinstance(actor, OperatorSupportBase):
            return name
    for frame in held:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("executorch.backends.arm"):
            return f"{module.removeprefix('executorch.backends.arm.')}.{frame.f_code.co_name}"
    return "the lowering"


def _mentioned(message: str, names: Mapping[str, str]) -> list[str]:
    return [names[word] for word in re.findall(r"[A-Za-z_]\w*", message) if word in names]
