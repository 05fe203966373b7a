"""Progress on stderr: a spinner or a bar on a terminal, a line for each step elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import TextIO, TypeAlias

from rich import progress
from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, Task, TaskID
from rich.text import Text

from safe_arm.cli.interrupt import stop_if_asked

#: Advances a bar by one.
Advance: TypeAlias = Callable[[], None]
#: The seconds without a line after which, outside a terminal, the next part is announced.
PATIENCE = 5.0


class _Counted(ProgressColumn):
    """A column that is empty for tasks without a total, which have a spinner."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self._column = column

    def render(self, task: Task) -> RenderableType:
        return Text() if task.total is None else self._column.render(task)


class Steps:
    """The long steps of a command, one after the other.

    Args:
        stream: where they are shown.
        quiet: show warnings only.

    Attributes:
        current: what is being done, for the message if it fails.
    """

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self.current = "start"
        self._console = Console(file=stream, highlight=False)
        self._quiet = quiet
        self._noted = monotonic()
        self._shown: Progress | None = None

    @contextmanager
    def step(
        self, name: str, total: int | None = None, announce: bool = True
    ) -> Iterator[Advance]:
        """Show a step while it runs and yield the function that advances its bar.

        Args:
            name: what is being done.
            total: how many times the bar advances, None for a spinner.
            announce: outside a terminal, print the line when the step begins; if not, once it has succeeded.
        """
        stop_if_asked()
        self.current = name
        began = monotonic()
        terminal = self._console.is_terminal
        if announce and not terminal:
            self.note(name)
        with self._bar(disable=self._quiet or not terminal) as self._shown:
            yield self._counting(self._shown, self._shown.add_task(name, total=total))
        if terminal or not announce:
            self.note(f"{name} ({monotonic() - began:.1f} s)")

    @contextmanager
    def part(
        self,
        name: str,
        total: int,
        line: str,
    ) -> Iterator[Advance]:
        """Show a bar of its own for a part of the step that is running, and yield the function that advances it.

        Args:
            name: what is being done.
            total: how many times the bar advances.
            line: what is printed instead outside a terminal; empty for nothing.
        """
        if self._shown is None or self._shown.disable:
            if line:
                self.note(line)
            yield lambda: None
            return
        task = self._shown.add_task(name, total=total)
        try:
            yield self._counting(self._shown, task)
        finally:
            self._shown.remove_task(task)

    @contextmanager
    def count(self, name: str, total: int) -> Iterator[Advance]:
        """Count the parts of the running step, if they are several, and yield the function to call after each.

        Outside a terminal a part has a line only if nothing was printed for ``PATIENCE`` seconds.

        Args:
            name: what is done, to one of them.
            total: how many they are.
        """
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            shown()
            if done < total and monotonic() - self._noted >= PATIENCE:
                self.note(f"{name} {done + 1} of {total}")

        with (
            self.part(name, total, "")
            if total > 1
            else nullcontext(lambda: None) as shown
        ):
            yield advance

    def _counting(self, shown: Progress, task: TaskID) -> Advance:
        return lambda: shown.update(task, advance=1, refresh=True)

    def note(self, text: str) -> None:
        """Print one line, unless all is to be quiet."""
        self._noted = monotonic()
        if not self._quiet:
            self._console.print(Text(text), soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print one line, whatever is to be quiet."""
        self._console.print(Text(f"Warning: {text}"), soft_wrap=True)

    def _bar(self, disable: bool) -> Progress:
        # Rich's own redirection would show what ``quiet`` silences.
        return Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            *map(
                _Counted,
                (progress.BarColumn(bar_width=16), progress.MofNCompleteColumn()),
            ),
            progress.TimeElapsedColumn(),
            _Counted(progress.TimeRemainingColumn(compact=True)),
            console=self._console,
            transient=True,
            disable=disable,
            redirect_stdout=False,
            redirect_stderr=False,
        )
