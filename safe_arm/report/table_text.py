"""Tables on a terminal, and in a file without spaces at the ends of their lines."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_table(table: Table, console: Console) -> None:
    """Print a table; rich fills the last column with spaces, which a file does not get."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)
