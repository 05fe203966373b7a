"""What is delegated of small nets of public libraries, and the page of the docs about it.

python -m benchmarks.coverage_map --record FILE [--only PATTERN] [--target 'TOSA INT'] [--by ours] [--limit 120]
python -m benchmarks.coverage_map --record FILE --write docs/coverage.md
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import click
import torch

from benchmarks.architectures.measure import rows_of
from benchmarks.coverage_map import other_libraries, timm_families
from benchmarks.coverage_map.cuts import OURS, STOCK, TARGETS, cut
from benchmarks.coverage_map.page import page

NETS = {**other_libraries.NETS, **timm_families.NETS}


@click.command()
@click.option(
    "--record", type=click.Path(path_type=Path), required=True, help="JSON lines; what is in it is not run again."
)
@click.option("--only", default="", metavar="PATTERN", help="Nets whose names this regular expression is found in.")
@click.option("--target", "targets", multiple=True, type=click.Choice(list(TARGETS)), default=("TOSA INT",))
@click.option("--by", multiple=True, type=click.Choice((OURS, STOCK)), default=(OURS,))
@click.option("--limit", default=90, show_default=True, help="CPU seconds after which a net is given up.")
@click.option("--write", type=click.Path(path_type=Path), help="Run nothing; write the page from the record.")
def main(
    record: Path, only: str, targets: tuple[str, ...], by: tuple[str, ...], limit: int, write: Path | None
) -> None:
    """Lower each net for each target and append the result to the record."""
    rows = rows_of(record)
    if write is not None:
        write.write_text(page(rows, list(NETS)))
        return
    torch.set_num_threads(1)
    known = {(row["net"], row["target"], row["by"]) for row in rows}
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a") as file:
        for target in targets:
            for name, make in NETS.items():
                if re.search(only, name) is None:
                    continue
                for each in by:
                    if (name, target, each) in known:
                        continue
                    result = cut(name, make, target, each, limit)
                    print(json.dumps(asdict(result)), file=file, flush=True)
                    summary = f"{result.delegates} delegates, {result.operators - result.inside} outside"
                    click.echo(f"{name} {target} {each}: {result.failed or summary} in {result.seconds} s")


if __name__ == "__main__":
    main()
