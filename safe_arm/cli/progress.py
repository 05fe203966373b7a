"""Progress on stderr: a spinner or a bar on a terminal, a line for each step elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

from rich import progress
from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, Task, TaskID
from rich.text import Text

from safe_arm.cli.interrupt import stop_if_asked


class _Counted(ProgressColumn):
    """A column for what is counted only; other tasks have a spinner."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self._column = column

    def render(self, task: Task) -> RenderableType:
        return Text() if task.total is None else self._column.render(task)


class Steps:
    """The long steps of a command, one after the other.

    Attributes:
        current: what is being done, for the message if it fails.
    """

    def __init__(self, stream: TextIO) -> None:
        self.current = "start"
        self._console = Console(file=stream, highlight=False)
        self._shown: Progress | None = None

    @contextmanager
    def step(self, name: str, total: int | None = None, announce: bool = True) -> Iterator[Callable[[], None]]:
        """Show a step while it runs and yield the function that advances its bar.

        Args:
            name: what is being done.
            total: how many times the bar advances, None for a spinner.
            announce: outside a terminal, print the line when the step begins; if not, once it has succeeded.
        """
        stop_if_asked()
        self.current, began, terminal = name, monotonic(), self._console.is_terminal
        if announce and not terminal:
            self.note(name)
        with self._bar(disable=not terminal) as self._shown:
            yield self._counting(self._shown, self._shown.add_task(name, total=total))
        if terminal or not announce:
            self.note(f"{name} ({monotonic() - began:.1f} s)")

    @contextmanager
    def part(self, name: str, total: int, line: str) -> Iterator[Callable[[], None]]:
        """Show a bar of its own for a part of the step that is running, and yield the function that advances it.

        Args:
            name: what is being done.
            total: how many times the bar advances.
            line: what is printed instead outside a terminal; empty for nothing.
        """
        if self._shown is None or not self._console.is_terminal:
            if line:
                self.note(line)
            yield lambda: None
            return
        task = self._shown.add_task(name, total=total)
        try:
            yield self._counting(self._shown, task)
        finally:
            self._shown.remove_task(task)

    def _counting(self, shown: Progress, task: TaskID) -> Callable[[], None]:
        return lambda: shown.update(task, advance=1, refresh=True)

    def note(self, text: str) -> None:
        """Print one line."""
        self._console.print(Text(text), soft_wrap=True)

    def _bar(self, disable: bool) -> Progress:
        # Left on, rich's own redirection would put on the terminal what ``quiet`` keeps off it.
        return Progress(
            progress.SpinnerColumn(), progress.TextColumn("{task.description}", markup=False),
            *map(_Counted, (progress.BarColumn(bar_width=16), progress.MofNCompleteColumn())),
            progress.TimeElapsedColumn(), _Counted(progress.TimeRemainingColumn(compact=True)),
            console=self._console, transient=True, disable=disable, redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
