"""Export the denoiser nine ways, print one table and write one picture: ``python -m demo``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from demo.quiet import output_to

OUT = Path("out")
PANELS = ("noisy photograph", "float in PyTorch", "stock", "safe_arm, propagate")


def main() -> int:
    """Run the demo; return 0 if every safe export computes what the quantised network computes."""
    OUT.mkdir(exist_ok=True)
    # The VGF backend looks for its converter on PATH only, also in an environment that is not activated.
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    with output_to(OUT / "demo.log") as (stdout, stderr):
        return compare(stdout, stderr)


def compare(stdout: TextIO, stderr: TextIO) -> int:
    """Export and measure, progress on ``stderr``, then print the table and draw the picture."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    untouched = {"redirect_stdout": False, "redirect_stderr": False}  # They lead to the log already.
    with Progress(*columns, console=Console(file=stderr), transient=True, **untouched) as progress:
        task = progress.add_task("loading PyTorch and ExecuTorch", total=11)
        from demo import export, picture, table
        from demo.photos import held_out

        titles = [f"{target.name}, {way}" for target in export.targets() for way in export.WAYS]
        progress.update(task, description="the network itself")
        references = export.references()
        rows: list[export.Row] = []
        progress.update(task, advance=1, description=titles[0])
        for row, following in zip(export.rows(OUT), [*titles[1:], "drawing"], strict=True):
            rows.append(row)
            progress.update(task, advance=1, description=following)
        first = [row for row in [*references, *rows] if row.target in ("reference", rows[0].target)]
        shown = {row.way: row.image for row in first if row.image is not None}
        picture.draw(held_out()[0], {way: shown[way] for way in PANELS if way in shown}, OUT / "demo.png")
    console = Console(file=stdout, width=None if stdout.isatty() else 114, highlight=False)
    console.print(table.table(references, rows))
    console.print(table.conclusion(references, rows), f"Picture: {OUT / 'demo.png'}", sep="\n")
    return 0 if all(row.way == "stock" or not (row.crash or row.wrong) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
