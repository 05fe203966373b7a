"""The rows that runs of many programs leave."""

import json
from pathlib import Path


def rows_of(folder: Path) -> list[dict]:
    """The rows in a directory of results, in the order they were written."""
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def files_of(rows: list[dict], suffix: str = ".pte") -> dict[str, str]:
    """The digests of the programs that rows list, by name."""
    return {name: sha for row in rows for name, sha in row["files"].items() if name.endswith(suffix)}
