"""Options with types of their own: a closed set of words, which shell completion offers, and an amount of memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from safe_arm.cli.targets import accept
from safe_arm.core.errors import UsageError

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3}


class Varied(click.Option):
    """An option that may be given again, for a job of each value; a project's default is one value all the same."""


class Suggested(click.ParamType):
    """Any text; shell completion knows the usual ones."""

    name = "text"

    def __init__(self, usual: Sequence[str]) -> None:
        self.usual = tuple(usual)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [
            CompletionItem(each) for each in self.usual if each.startswith(incomplete)
        ]


class OneOf(Suggested):
    """One of a closed set of words.

    Args:
        what: what an error calls the value.
        accepted: the words, in the order to list them.
    """

    name = "word"

    def __init__(self, what: str, accepted: Sequence[str]) -> None:
        super().__init__(accepted)
        self.what = what

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        return accept(self.what, value, self.usual)

    def get_missing_message(
        self, param: click.Parameter, ctx: click.Context | None = None
    ) -> str:
        return f"Give one of: {', '.join(self.usual)}"


class Percent(click.FloatRange):
    """A number within bounds; an error calls it that."""

    name = "number"


class File(click.Path):
    """A path; an error about a required option without one says how to give it."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def get_missing_message(
        self, param: click.Parameter, ctx: click.Context | None = None
    ) -> str | None:
        if not isinstance(param, click.Option):
            return None
        return f"Give {param.opts[0]} {param.metavar}"


class Bytes(click.ParamType):
    """A number of bytes, ``524288``, or of KiB, MiB or GiB, ``512K``, ``0.5MiB``.

    Args:
        option: what an error calls it.
    """

    name = "bytes"

    def __init__(self, option: str) -> None:
        self.option = option

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        match = re.fullmatch(
            r"(\d+(?:\.\d+)?) ?([KMG]?)(?:i?B)?", str(value).strip(), re.I
        )
        if match is None:
            raise UsageError(
                f"{self.option} {value!r} is no amount of memory; give bytes, or KiB as in 512K, MiB as in 2M"
            )
        return round(float(match[1]) * 1024 ** _POWERS[match[2].upper()])
