"""The programs, targets, profiles and policies of a command, and the name of each combination."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import click

from safe_arm.cli.request import VELAS
from safe_arm.core.errors import UsageError


class Varied(click.Option):
    """An option that may be given again, for a job of each value; a project's default is one value all the same."""


def combinations(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each combination of the targets, profiles and policies of a command, as options of a job.

    An Ethos-U has its own profile, and takes none of those given. Other targets take none of Vela's options.
    """
    unique: list[dict[str, Any]] = []
    for target, policy in product(params["target"], params["non_fuseable"]):
        is_ethos_u = target.startswith("ethos-u")
        for profile in (not is_ethos_u and params["profile"]) or (None,):
            options = {"target": target, "profile": profile, "non_fuseable": policy}
            if not is_ethos_u:
                options |= dict.fromkeys(VELAS)
            if options not in unique:
                unique.append(options)
    return unique


def programs(names: Sequence[Path]) -> tuple[Path, ...]:
    """Return the files that names and patterns stand for, each once; the files of a pattern are sorted.

    Raises:
        UsageError: no file matches a pattern.
    """
    unique: dict[Path, None] = {}
    for name in names:
        if not is_pattern(name):
            unique[name] = None
            continue
        matching = sorted(glob.glob(str(name), recursive=True))
        if not matching:
            raise UsageError(
                f"no file matches {str(name)!r}; give .pt2 files, or a pattern such as 'models/*.pt2'"
            )
        unique.update(dict.fromkeys(map(Path, matching)))
    return tuple(unique)


def is_pattern(path: Path) -> bool:
    """Return whether a name stands for the files that match it, and is not a file's own."""
    return glob.has_magic(str(path)) and not path.exists()


def names_of(paths: Sequence[Path]) -> dict[Path, str]:
    """Return a unique name for each path: its stem, with the directories before it if others share the stem."""
    names: dict[Path, str] = {}
    uses = Counter(path.stem for path in paths)
    for path in paths:
        name = path.stem
        if uses[name] > 1:
            name = "-".join((*path.absolute().parts[1:-1], name))
        if name in names.values():
            name = f"{name}-{len(names)}"
        names[path] = name
    return names
