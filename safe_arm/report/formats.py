"""What a report can be written as, told by its file's name. Loads nothing."""

from __future__ import annotations

from pathlib import Path

from safe_arm.core.errors import one_of

#: By how the name ends, the more particular first.
ENDINGS = {
    ".overlay.json": "an overlay for Model Explorer",
    ".graph.json": "the graph under it",
    ".json": "for programs",
    ".html": "for people",
}


def check_ending(path: Path) -> str:
    """Return which of ``ENDINGS`` a file's name has.

    Raises:
        UsageError: none of them.
    """
    ending = next((each for each in ENDINGS if path.name.lower().endswith(each)), None)
    if ending is None:
        raise one_of("report", path.name, [f"a name that ends in {each}" for each in ENDINGS])
    return ending
