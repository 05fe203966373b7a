"""The programs, targets, profiles and policies of a command, and what each job of their product is called."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import click

from safe_arm.core.errors import UsageError


class Varied(click.Option):
    """An option that may be given again, for a job of each value; a project's default is one value all the same."""


@dataclass(frozen=True)
class Combination:
    """What one program is compiled for.

    Attributes:
        target, policy: as the command line takes them.
        profile: likewise; None for the target's own.
    """

    target: str
    profile: str | None
    policy: str


def combinations(
    targets: Sequence[str], profiles: Sequence[str], policies: Sequence[str]
) -> tuple[Combination, ...]:
    """Return the product, each once; an Ethos-U has a profile of its own, so those given are for the others."""
    found: dict[Combination, None] = {}
    for target, policy in product(targets, policies):
        for profile in (
            profiles if profiles and not target.startswith("ethos-u") else (None,)
        ):
            found[Combination(target, profile, policy)] = None
    return tuple(found)


def programs(given: Sequence[Path]) -> tuple[Path, ...]:
    """Return the files that names and patterns stand for, each once, those of a pattern sorted.

    Raises:
        UsageError: no file matches a pattern.
    """
    found: dict[Path, None] = {}
    for each in given:
        if not is_pattern(each):
            found[each] = None
            continue
        matching = sorted(glob.glob(str(each), recursive=True))
        if not matching:
            raise UsageError(
                f"no file matches {str(each)!r}; give .pt2 files, or a pattern such as 'models/*.pt2'"
            )
        found.update(dict.fromkeys(map(Path, matching)))
    return tuple(found)


def is_pattern(path: Path) -> bool:
    """Whether a name stands for files that match it, and is no file's own."""
    return glob.has_magic(str(path)) and not path.exists()


def names_of(paths: Sequence[Path]) -> dict[Path, str]:
    """Return what each program is called: its file's name without the suffix, directories before it if others share it.

    Args:
        paths: each once.
    """
    found: dict[Path, str] = {}
    shared = Counter(path.stem for path in paths)
    for path in paths:
        name = (
            path.stem
            if shared[path.stem] == 1
            else "-".join((*path.absolute().parts[1:-1], path.stem))
        )
        found[path] = name if name not in found.values() else f"{name}-{len(found)}"
    return found
