"""Reasons for people: without schemas, tracebacks and lists of passes, which the report's JSON keeps. Loads nothing."""

from __future__ import annotations

import re

#: Maximum number of characters of what the quantiser raised.
LONGEST = 160
_RETURNS = r"(\([^)]*\)|[\w\[\]?]+(\(\w!?\))?)"
#: Patterns of raw text, each with what stands in its place.
_RAW = (
    # An operator that upstream prints with its schema.
    (
        rf"<\w*OpOverload: [\w.]+>: schema = ([\w:]+)[\w.]*\(.*?( -> {_RETURNS}|\.\.\.$)",
        r"\1",
    ),
    (r"<\w*OpOverload: (\w+)\.(\w+)\.\w+>", r"\1::\2"),
    # The node and the traceback that torch.fx adds to an exception.
    (r" While executing %.*", ""),
    # The error of an invariant between two passes.
    (r"InvariantError: invariant '([^']+)' broken by \w+: ", r"it breaks \1: "),
    (r" \(changed before it by: [^)]*(\)|$)", ""),
)
#: For each stage of quantising, how the text about an operator that it fails on begins.
_STAGES = {
    "transform": "the quantiser fails to transform it: ",
    "annotate": "the quantiser fails to annotate it: ",
    "observe": "",
}


def plain(reason: str) -> str:
    """Return a reason as people read it: one sentence, operators by their names."""
    for pattern, instead in _RAW:
        reason = re.sub(pattern, instead, reason)
    return reason


def plain_left_float(reason: str) -> str:
    """Return why the quantiser left an operator float, as people read it.

    Args:
        reason: the stage that failed and what it raised, such as ``transform: RuntimeError: no``.
    """
    stage, found, raised = reason.partition(": ")
    if not found or stage not in _STAGES:
        return reason
    text = plain(re.sub(r"^\w+(Error|Exception): ", "", raised))
    if len(text) > LONGEST:
        text = f"{text[:LONGEST].rpartition(' ')[0]} ..."
    return _STAGES[stage] + text
