"""Which line of the user's code made a node."""

from __future__ import annotations

import os
import re
import sysconfig

from torch.fx import Node

#: Installed packages (Debian's are in ``dist-packages``), an interpreter's own library, what was never in a file.
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
        if frame and not _NOT_THE_USERS.search(frame[1]):
            code = (
                "" if code.startswith('File "') else code
            )  # The source was not at hand.
            return f"{frame[1].replace(chr(92), '/').rsplit('/', 1)[-1]}:{frame[2]}  {code}".rstrip()
    return ""
