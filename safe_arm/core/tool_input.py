"""Keep the input that an external tool failed on, for a report of the failure."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

from safe_arm.core.errors import ToolError

#: Prefix of the directories in which a failing tool's input is kept.
KEPT = "safe_arm-"


def keep(error: ToolError) -> str:
    """Write the input of a failed tool into a fresh directory, once, and return the command that repeats the failure.

    Returns:
        A shell command that runs from any directory; empty if the input could not be written.
    """
    if error.data:
        try:
            directory = Path(tempfile.mkdtemp(prefix=KEPT))
            (directory / error.file_name).write_bytes(error.data)
        except OSError:
            return ""
        error.command = with_input_at(error, str(directory / error.file_name))
        error.data = b""
    return error.command


def with_input_at(error: ToolError, place: str) -> str:
    """Return the command of a failed tool with another name for its input, and for files that are named after it."""
    words = []
    for word in shlex.split(error.command):
        if word.startswith(error.file_name):
            word = place + word.removeprefix(error.file_name)
        words.append(word)
    return shlex.join(words)
