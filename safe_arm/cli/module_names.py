"""The modules of a saved program, read without torch, and those that the user names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from safe_arm.cli.model_file import program_text
from safe_arm.cli.spelling import similar
from safe_arm.core.errors import UsageError

_STACK = re.compile(r'"nn_module_stack":\s*("(?:[^"\\]|\\.)*")')
#: The maximum number of names that an error lists if none is similar.
LISTED = 12


def modules_of(path: Path) -> dict[str, str]:
    """Return the type's name of each module with operators in a program, by its path such as ``blocks.0.conv``."""
    modules: dict[str, str] = {}
    for stack in dict.fromkeys(_STACK.findall(program_text(path))):
        # An entry for each module around the operator; torch finds out what is damaged.
        for entry in json.loads(stack).split(";"):
            words = entry.split(",", 2)
            if len(words) == 3:
                _, module, kind = words
                modules[module.removeprefix("L['self'].")] = kind
    return modules


def paths_of(names: Sequence[str], modules: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths of named modules; a name is a path, or a type that stands for all its modules.

    Args:
        names: paths, and names of types with or without their packages.
        modules: by path, the type's name with its packages.

    Raises:
        UsageError: a name that the model has not got; the message lists the near ones.
    """
    unique: dict[str, None] = {}
    for name in names:
        if name and name in modules:
            unique[name] = None
            continue
        of_type = []
        for path, kind in modules.items():
            if name and name in (kind, kind.rpartition(".")[2]):
                of_type.append(path)
        if not of_type:
            raise _unknown(name, modules)
        unique.update(dict.fromkeys(of_type))
    return tuple(unique)


def _unknown(name: str, modules: Mapping[str, str]) -> UsageError:
    paths = [path for path in modules if path]
    kinds = list(dict.fromkeys(kind.rpartition(".")[2] for kind in modules.values()))
    if alike := similar(name, [*paths, *kinds]):
        return UsageError(
            f"--keep-float {name!r} is no module or module type of the model; similar: {', '.join(alike)}"
        )
    shown = ", ".join(paths[:LISTED])
    if len(paths) > LISTED:
        shown += f" and {len(paths) - LISTED} more"
    return UsageError(
        f"--keep-float {name!r} is no module or module type of the model; "
        f"it has modules {shown or '(none)'} and types {', '.join(kinds) or '(none)'}"
    )
