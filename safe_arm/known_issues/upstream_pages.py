"""The pages that are ready to be sent upstream, one a bug: repro, cause, patch and test."""

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
    pages = sorted(
        (each for each in folder.iterdir() if each.name.endswith(".md")),
        key=lambda each: each.name,
    )
    heads = (
        (re.match(r"---\nissue: (.+)\n", each.read_text(encoding="utf-8")), each)
        for each in pages
    )
    return {
        issue.strip(): each
        for head, each in heads
        if head
        for issue in head[1].strip("\"'").split(",")
    }


def page_text(page: Traversable) -> str:
    """Return a page as it is sent: without what the tools of this project read at its top."""
    return page.read_text(encoding="utf-8").partition("\n---\n")[2]
