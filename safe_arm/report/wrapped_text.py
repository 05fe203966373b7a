"""A name with a text beside it, in lines of whole words. Loads nothing."""

import textwrap
from collections.abc import Iterator
from typing import TypeAlias

#: Names, each with a text beside it.
Lines: TypeAlias = Iterator[tuple[str, str]]


def wrapped(name: str, text: str, width: int, more: str = "") -> list[str]:
    """Return lines of at most some width; later ones are indented by the width of the name, and more."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=name,
        subsequent_indent=" " * len(name) + more,
        break_long_words=False,
        break_on_hyphens=False,
    )
