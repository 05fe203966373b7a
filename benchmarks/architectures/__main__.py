"""Forty architectures through stock and safe_arm, and the page of the docs about them.

python -m benchmarks.architectures --record out/architectures.jsonl [--net resnet ...] [--profile TOSA-1.0+INT ...]
python -m benchmarks.architectures --record out/architectures.jsonl --float-record out/float.jsonl \\
    --write docs/architectures.md
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from benchmarks.architectures import ARCHITECTURES
from benchmarks.architectures.measure import POLICIES, PROFILES, STOCK, as_json, results, rows_of
from benchmarks.architectures.table import page


@click.command()
@click.option(
    "--record", type=click.Path(path_type=Path), required=True, help="JSON lines; what is in it is not run again."
)
@click.option("--net", "nets", multiple=True, type=click.Choice(list(ARCHITECTURES)), help="Only these.")
@click.option("--profile", "profiles", multiple=True, type=click.Choice(PROFILES), default=PROFILES)
@click.option("--by", multiple=True, type=click.Choice((STOCK, *POLICIES)), default=(STOCK, *POLICIES))
@click.option("--write", type=click.Path(path_type=Path), help="Run nothing; write the page from both records.")
@click.option(
    "--float-record", type=click.Path(path_type=Path), help="What benchmarks.architectures.beside_float recorded."
)
def main(
    record: Path,
    nets: tuple[str, ...],
    profiles: tuple[str, ...],
    by: tuple[str, ...],
    write: Path | None,
    float_record: Path | None,
) -> None:
    """Lower each net by stock and under both policies; append each result to the record."""
    rows = rows_of(record)
    if write is not None:
        if float_record is None:
            raise click.UsageError("--write needs --float-record")
        write.write_text(page(rows, rows_of(float_record)))
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
