"""The formats of a report's file, by the ending of its name. Loads nothing."""

from __future__ import annotations

from pathlib import Path

from safe_arm.core.errors import one_of

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
    accepted = [f"a name that ends in {suffix}" for suffix in FORMATS]
    raise one_of("report", path.name, accepted)
