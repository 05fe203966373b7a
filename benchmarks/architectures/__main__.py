"""Forty architectures through stock and safe_arm, and the page of the docs about them.

python -m benchmarks.architectures --record out/architectures.jsonl [--net resnet ...] [--profile TOSA-1.0+INT ...]
python -m benchmarks.architectures --record out/architectures.jsonl --write docs/architectures.md
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from benchmarks.architectures import ARCHITECTURES
from benchmarks.architectures.measure import POLICIES, PROFILES, STOCK, as_json, results
from benchmarks.architectures.table import page


@click.command()
@click.option(
    "--record", type=click.Path(path_type=Path), required=True, help="JSON lines; what is in it is not run again."
)
@click.option("--net", "nets", multiple=True, type=click.Choice(list(ARCHITECTURES)), help="Only these.")
@click.option("--profile", "profiles", multiple=True, type=click.Choice(PROFILES), default=PROFILES)
@click.option("--by", multiple=True, type=click.Choice((STOCK, *POLICIES)), default=(STOCK, *POLICIES))
@click.option("--write", type=click.Path(path_type=Path), help="Run nothing; write the page from the record.")
def main(
    record: Path, nets: tuple[str, ...], profiles: tuple[str, ...], by: tuple[str, ...], write: Path | None
) -> None:
    """Lower each net by stock and under both policies; append each result to the record."""
    rows = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    if write is not None:
        write.write_text(page(rows))
        return
    known = {(row["net"], row["profile"], row["by"]) for row in rows}
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a") as file:
        for profile in profiles:
            for name in nets or ARCHITECTURES:
                missing = tuple(each for each in by if (name, profile, each) not in known)
                if not missing:
                    continue
                for result in results(name, ARCHITECTURES[name](), profile, missing):
                    print(json.dumps(as_json(result)), file=file, flush=True)
                    click.echo(f"{name} {profile} {result.by}: {result.outcome} {result.reason}")


if __name__ == "__main__":
    main()
