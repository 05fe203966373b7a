"""A name with a text beside it, in lines of whole words. Loads nothing."""

import textwrap
from collections.abc import Iterator
from typing import TypeAlias

#: Names, each with a text beside it.
Lines: TypeAlias = Iterator[tuple[str, str]]


def wrapped(name: str, text: str, width: int) -> list[str]:
    """Return lines of at most some width; those after the first are indented by the width of the name."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=name,
        subsequent_indent=" " * len(name),
        break_long_words=False,
        break_on_hyphens=False,
    )
