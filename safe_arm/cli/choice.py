"""Types of options with a closed set of values, which ``accept`` checks and shell completion offers."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from safe_arm.cli.targets import accept


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
