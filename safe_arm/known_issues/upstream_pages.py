"""The reports that are ready to be sent upstream, one for each bug: repro, cause, patch and test."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

#: The pages are part of the docs; the wheel has a copy beside this file.
_CHECKOUT = Path(__file__).parents[2] / "docs" / "upstream"


def upstream_pages() -> dict[str, Traversable]:
    """Return the page about each issue that has one, by the issue's id."""
    packaged = files(__package__) / "upstream"
    folder = packaged if packaged.is_dir() else _CHECKOUT
    pages = {}
    for page in sorted(folder.iterdir(), key=lambda path: path.name):
        if not page.name.endswith(".md"):
            continue
        head = re.match(r"---\nissue: (.+)\n", page.read_text(encoding="utf-8"))
        if head:
            for issue in head[1].strip("\"'").split(","):
                pages[issue.strip()] = page
    return pages


def page_text(page: Traversable) -> str:
    """Return a page as it is sent: without the lines at its top for the tools of this project."""
    return page.read_text(encoding="utf-8").partition("\n---\n")[2]
