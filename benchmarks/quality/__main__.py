"""How well quantisation keeps a float net: a table of signal to noise, ideal beside ours and stock.

python -m benchmarks.quality [--only PATTERN] [--every N] [--by ours] [--json out.json] [--write docs/quality.md]

``--only 'b/|c/2-layers/x3'`` is quick enough to judge a change. Ideal and stock are measured once; ours again whenever
safe_arm's source changes.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import torch
from rich.console import Console

from benchmarks.quality.judge import BY, Figure, figures
from benchmarks.quality.lines import as_json, lines, page, terminal
from benchmarks.quality.measured import append, keys_of_code, read
from benchmarks.quality.rows import ENTRIES, SOURCES


@click.command()
@click.option("--only", default="", metavar="PATTERN", help="Rows whose names this regular expression is found in.")
@click.option("--every", default=1, show_default=True, type=click.IntRange(1), help="One in so many of these rows.")
@click.option("--by", multiple=True, type=click.Choice(BY), default=BY, help="Only these figures; may be repeated.")
@click.option("--json", "to_json", type=click.Path(path_type=Path), help="Write the figures.")
@click.option("--write", type=click.Path(path_type=Path), help="Write the page.")
@click.option(
    "--record", type=click.Path(path_type=Path), default=Path("out/quality.jsonl"), show_default=True,
    help="JSON lines; what is in it is not measured again unless the code changed.",
)  # fmt: skip
def main(only: str, every: int, by: tuple[str, ...], to_json: Path | None, write: Path | None, record: Path) -> None:
    """Measure rows and print their table, the largest loss first."""
    torch.set_num_threads(1)
    entries = [entry for entry in ENTRIES if re.search(only, entry.name)][::every]
    known: dict[tuple[str, str], Figure] = {}
    for figure in read(record):
        if figure.row in SOURCES and keys_of_code(SOURCES[figure.row])[figure.by] == figure.key:
            known[figure.row, figure.by] = figure
    console = Console(stderr=True)
    for number, entry in enumerate(entries):
        keys = keys_of_code(SOURCES[entry.name])
        missing = {each: keys[each] for each in by if (entry.name, each) not in known}
        if not missing:
            continue
        console.print(f"{number + 1} of {len(entries)}: {entry.name}", highlight=False)
        measured = figures(entry, missing)
        append(record, measured)
        for figure in measured:
            known[figure.row, figure.by] = figure
    found = lines(entries, known.values())
    Console(width=None if Console().is_terminal else 160).print(terminal(found))
    if to_json is not None:
        to_json.write_text(as_json(found))
    if write is not None:
        write.write_text(page(found))


if __name__ == "__main__":
    main()
