"""Which tests `make test` leaves to `make test-all`: what ``tests/slow.txt`` lists, and all profiles of a row but one.

``tests/unit.txt`` names the files that `make check` runs.

A line is a test, a row of a table, or a table, by its place in ``tests/``. ``every N`` behind a table leaves all of its
rows but each Nth; a table alone leaves all of them. Of a table that asks only what stock does, one row in
``ROWS_OF_STOCK`` runs: nothing that changes in the package changes a pinned wheel.
"""

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "slow.txt"
_LINE = re.compile(r"(?P<name>.+?)( every (?P<every>\d+))?")
#: The profile of a row, in its id.
PROFILE = re.compile(r"(?<=[\[-])TOSA-1\.0\+[A-Z+]+(?=[\]-])")
#: The name of a table that asks what stock does, and nothing of ours.
STOCK = re.compile(r"test_stock_(?!s_)(?!.*ours)")
ROWS_OF_STOCK = 8


def _listed() -> dict[str, int]:
    lines = (_LINE.fullmatch(line) for line in FILE.read_text().splitlines())
    return {line["name"]: int(line["every"] or 0) for line in lines if line}


#: The files whose tests lower nothing.
UNIT = frozenset(FILE.with_name("unit.txt").read_text().splitlines())
#: How many rows of a table one is taken of; 0 of what is left out.
SLOW = _listed()


def name_of(item: Any) -> str:
    """Return a test's id from its place in tests/ on: two folders have files of one name."""
    return item.nodeid.removeprefix("tests/")


def often(items: Iterable[Any]) -> set[Any]:
    """Return what `make test` runs of these tests."""
    wanted = [item for item in items if 0 not in (SLOW.get(name_of(item)), SLOW.get(_table(item)))]
    return set(_each_nth(_in_one_profile(wanted)))


def lost(items: Iterable[Any], listed: dict[str, int] = SLOW) -> list[str]:
    """Return what is listed and is no more; another ExecuTorch may have other rows, but no other tests."""
    tests = {_table(item) for item in items}
    files = {name.partition("::")[0] for name in tests}
    return [name for name in listed if name.partition("::")[0] in files and name.partition("[")[0] not in tests]


def _table(item: Any) -> str:
    return name_of(item).partition("[")[0]


def _in_one_profile(items: list[Any]) -> list[Any]:
    """Of rows that differ in their profile alone, one; which one differs from row to row."""
    rows = defaultdict(list)
    for item in items:
        rows[PROFILE.sub("", item.nodeid)].append(item)
    return [alike[zlib.crc32(name.encode()) % len(alike)] for name, alike in rows.items()]


def _each_nth(items: list[Any]) -> list[Any]:
    """Of the tables that are listed with a number, each row of that number."""
    rows = defaultdict(list)
    for item in items:
        rows[_table(item)].append(item)
    return [item for name, table in rows.items() for item in table[:: _every(name)]]


def _every(table: str) -> int:
    """Return how many rows of a table one is taken of."""
    asks_stock_alone = STOCK.match(table.rpartition("::")[2])
    return SLOW.get(table) or (ROWS_OF_STOCK if asks_stock_alone else 1)
