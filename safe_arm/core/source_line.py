"""The line of the user's code that made a node."""

from __future__ import annotations

import os
import re
import sysconfig

from torch.fx import Node

#: Installed packages (Debian's are in ``dist-packages``), an interpreter's own library, code that was never in a file.
_NOT_THE_USERS = re.compile(
    r"[/\\](site|dist)-packages[/\\]|[/\\]lib(64)?[/\\]python3\.\d+[/\\]|^<(eval_with_key|frozen )"
    rf"|^{re.escape(sysconfig.get_path('stdlib') + os.sep)}"
)


def source_line(node: Node) -> str:
    """Return the user's own line that made a node, ``file:line  code``; empty if export kept none.

    That is the innermost frame outside installed packages: a convolution in an ``nn.Conv2d`` is called by the user's
    ``forward``, not by torch's.
    """
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    for where, code in zip(reversed(lines[:-1]), reversed(lines[1:]), strict=True):
        frame = re.match(r'File "(.+)", line (\d+)', where)
        if frame is None or _NOT_THE_USERS.search(frame[1]):
            continue
        file = re.split(r"[/\\]", frame[1])[-1]
        if code.startswith('File "'):  # The source was not at hand.
            return f"{file}:{frame[2]}"
        return f"{file}:{frame[2]}  {code}".rstrip()
    return ""
