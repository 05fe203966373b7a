"""Which line of the user's code made a node."""

from __future__ import annotations

import re

from torch.fx import Node


def source_line(node: Node) -> str:
    """Return the user's own line that made a node, ``file:line  code``; empty if export kept none.

    That is the innermost frame outside installed packages: a convolution in an ``nn.Conv2d`` is called by the user's
    ``forward``, not by torch's.
    """
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    for where, code in zip(reversed(lines[:-1]), reversed(lines[1:]), strict=True):
        frame = re.match(r'File "(.+)", line (\d+)', where)
        if frame and "site-packages" not in where and not frame[1].startswith("<eval_with_key>"):
            code = "" if code.startswith('File "') else code  # The source was not at hand.
            return f"{frame[1].replace(chr(92), '/').rsplit('/', 1)[-1]}:{frame[2]}  {code}".rstrip()
    return ""
