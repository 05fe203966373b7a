"""What a report can be written as, told by its file's name. Loads nothing."""

from __future__ import annotations

from pathlib import Path

from safe_arm.core.errors import one_of

#: By how the name ends, the more particular first.
FORMATS = {
    ".overlay.json": "an overlay for Model Explorer",
    ".graph.json": "the graph under it",
    ".json": "for programs",
    ".html": "for people",
}


def format_of(path: Path) -> str:
    """Return which of ``FORMATS`` a file's name ends in.

    Raises:
        UsageError: none of them.
    """
    suffix = next((each for each in FORMATS if path.name.lower().endswith(each)), None)
    if suffix is None:
        raise one_of(
            "report", path.name, [f"a name that ends in {each}" for each in FORMATS]
        )
    return suffix
