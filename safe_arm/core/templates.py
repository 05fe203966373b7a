"""The templates of pages and scripts; a name that a template does not get is an error."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape


@cache
def templates(package: str, folder: str) -> Environment:
    """Return the templates of a package.

    Args:
        package: its name.
        folder: their folder in it. What a template ``.html.j2`` gets is escaped.
    """
    return Environment(
        loader=PackageLoader(package, folder),
        autoescape=select_autoescape(("html.j2",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
