"""Progress on stderr: a spinner or a bar on a terminal, a line for each step elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text


class Steps:
    """The long steps of a command, one after the other.

    Attributes:
        current: what is being done, for the message if it fails.
    """

    def __init__(self, stream: TextIO) -> None:
        self.current = "start"
        self._console = Console(file=stream, highlight=False)

    @contextmanager
    def step(self, name: str, total: int | None = None, announce: bool = True) -> Iterator[Callable[[], None]]:
        """Show a step while it runs and yield the function that advances its bar.

        Args:
            name: what is being done.
            total: how many times the bar advances, None for a spinner.
            announce: outside a terminal, print the line when the step begins; if not, once it has succeeded.
        """
        self.current, began, terminal = name, monotonic(), self._console.is_terminal
        if announce and not terminal:
            self._say(name)
        with self._bar(total, disable=not terminal) as bar:
            task = bar.add_task(name, total=total)
            yield lambda: bar.advance(task)
        if terminal or not announce:
            self._say(f"{name} ({monotonic() - began:.1f} s)")

    def note(self, text: str) -> None:
        """Print one line."""
        self._say(text)

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def _bar(self, total: int | None, disable: bool) -> Progress:
        counted = (BarColumn(), MofNCompleteColumn()) if total else ()
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), *counted, TimeElapsedColumn())
        # Left on, rich's own redirection would put on the terminal what ``quiet`` keeps off it.
        return Progress(
            *columns,
            console=self._console,
            transient=True,
            disable=disable,
            redirect_stdout=False,
            redirect_stderr=False,
        )
