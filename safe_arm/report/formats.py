"""The formats of a report's file, by the ending of its name. Loads nothing."""

from __future__ import annotations

from pathlib import Path

from safe_arm.core.errors import UsageError

#: The purpose of each format by the ending of the name.
FORMATS = {
    ".json": "for programs",
    ".html": "for people",
}


def format_of(path: Path) -> str:
    """Return which of ``FORMATS`` a file's name ends in.

    Raises:
        UsageError: none of them.
    """
    for suffix in FORMATS:
        if path.name.lower().endswith(suffix):
            return suffix
    raise UsageError(
        f"report {path.name!r} has to end in {' or '.join(FORMATS)}, which selects the format"
    )
