"""Names of models that a library makes by their names alone, from ``names.txt``."""

from __future__ import annotations

from pathlib import Path


def names_of(library: str) -> list[str]:
    """Return the names of a library's models in the map."""
    names: list[str] = []
    is_of_library = False
    for line in Path(__file__).with_name("names.txt").read_text().splitlines():
        if not line.startswith((" ", "#")):
            header, _, line = line.partition(":")
            is_of_library = header == library
        if is_of_library:
            names += line.split()
    return names
