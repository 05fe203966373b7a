"""Every module of safe_arm with its first sentence, as a page of the docs.

python tools/modules.py [--write]

Prints the page; with ``--write`` it goes to docs/reference/modules.md.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "modules.md"
OPENING = """# Modules

This page lists every module with its first sentence, by package. `python tools/modules.py --write` generates it.
"""


def page() -> str:
    """Return the page: a table for each package that has modules."""
    folders = {path.parent for path in (ROOT / "safe_arm").rglob("*.py")}
    return OPENING + "".join(_table(folder) for folder in sorted(folders))


def _table(folder: Path) -> str:
    modules = [path for path in sorted(folder.glob("*.py")) if path.name not in ("__init__.py", "__main__.py")]
    if not modules:
        return ""
    lines = "".join(f"| `{path.name}` | {_first_sentence(path)} |\n" for path in modules)
    return "".join(_heading(folder)) + "| module | |\n| --- | --- |\n" + lines


def _heading(folder: Path) -> Iterator[str]:
    yield f"\n## {folder.relative_to(ROOT)}\n"
    sentence = _first_sentence(folder / "__init__.py")
    if sentence:
        yield f"{sentence}\n\n"


def _first_sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return docstring.partition("\n")[0].replace("|", "\\|").replace("``", "`")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
