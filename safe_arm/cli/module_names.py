"""The modules of a saved program, read without torch, and those that the user names."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from safe_arm.cli.model_file import program_json
from safe_arm.cli.spelling import similar
from safe_arm.core.errors import UsageError

_STACK = re.compile(r'"nn_module_stack":\s*("(?:[^"\\]|\\.)*")')
#: How many names an error lists if none is like the one given.
LISTED = 12


def modules_of(path: Path) -> dict[str, str]:
    """Return the modules that a program's operators come from: by path, such as ``blocks.0.conv``, the type's name."""
    found: dict[str, str] = {}
    with zipfile.ZipFile(path) as archive:
        text = archive.read(program_json(archive.namelist()) or "").decode(
            errors="replace"
        )
    for stack in dict.fromkeys(_STACK.findall(text)):
        entries = (entry.split(",", 2) for entry in json.loads(stack).split(";"))
        # A key, the path and the type of each module around the operator; torch finds out what is damaged.
        found.update(
            (entry[1].removeprefix("L['self']."), entry[2])
            for entry in entries
            if len(entry) == 3
        )
    return found


def paths_of(names: Sequence[str], modules: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths of the modules that are named, each by its path or all of a type by the type's name.

    Args:
        names: paths, and names of types with or without their packages.
        modules: by path, the type's name with its packages.

    Raises:
        UsageError: a name that the model has not got; the message lists the near ones.
    """
    found: dict[str, None] = {}
    for name in names:
        paths = [name] if name and name in modules else []
        paths = paths or [
            path
            for path, kind in modules.items()
            if name and name in (kind, kind.rpartition(".")[2])
        ]
        if not paths:
            raise _unknown(name, modules)
        found.update(dict.fromkeys(paths))
    return tuple(found)


def _unknown(name: str, modules: Mapping[str, str]) -> UsageError:
    paths = [path for path in modules if path]
    kinds = list(dict.fromkeys(kind.rpartition(".")[2] for kind in modules.values()))
    if alike := similar(name, [*paths, *kinds]):
        return UsageError(
            f"--keep-float {name!r} is no module and no type of the model's; near: {', '.join(alike)}"
        )
    shown = ", ".join(paths[:LISTED]) + (
        f" and {len(paths) - LISTED} more" if len(paths) > LISTED else ""
    )
    return UsageError(
        f"--keep-float {name!r} is no module and no type of the model's; "
        f"it has modules {shown or '(none)'} and types {', '.join(kinds) or '(none)'}"
    )
