"""``tests/slow.txt`` names tests by their place in tests/, so that any file of tests runs alone."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import slow_list

TESTS = Path(__file__).parent


@dataclass(frozen=True)
class Item:
    """A test, as far as the list is concerned."""

    nodeid: str


def items(*names):
    return [Item(f"tests/{name}") for name in names]


def test_every_file_of_the_list_is_there():
    names = {name.partition("::")[0] for name in slow_list.SLOW}
    assert {name for name in names if not (TESTS / name).is_file()} == set()


def test_files_of_one_name_are_told_apart():
    """Two folders have them, and the list names tests of one: the other one's file, run alone, has lost nothing."""
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    twice = {name for name, count in names.items() if count > 1}
    assert twice != set()
    assert slow_list.lost(items("programs/test_a.py::test_it"), {"verification/test_a.py::test_other": 0}) == []


def test_what_is_no_more_is_named():
    listed = {"core/test_a.py::test_gone": 0, "core/test_a.py::test_it[a row of 1.4]": 0, "core/test_b.py::test_b": 0}
    assert slow_list.lost(items("core/test_a.py::test_it[b]"), listed) == ["core/test_a.py::test_gone"]


def test_rows_are_left_out_as_listed(monkeypatch):
    listed = {"a.py::test_table": 2, "a.py::test_whole": 0, "a.py::test_row[x]": 0}
    monkeypatch.setattr(slow_list, "SLOW", listed)
    rows = ("table[0]", "table[1]", "table[2]", "table[3]", "whole[0]", "row[x]", "row[y]")
    names = [f"a.py::test_{row}" for row in rows]
    left = {slow_list.name_of(item) for item in slow_list.often(items(*names))}
    assert left == {"a.py::test_table[0]", "a.py::test_table[2]", "a.py::test_row[y]"}


def test_of_what_stock_does_alone_one_row_is_left(monkeypatch):
    monkeypatch.setattr(slow_list, "SLOW", {"a.py::test_stock_raises": 2})
    names = "stock_dies", "stock_raises", "stock_s_partitioner_takes_it", "stock_is_wrong_and_ours_is_not"
    rows = items(*(f"a.py::test_{name}[{row}]" for name in names for row in range(3)))
    left = Counter(slow_list.name_of(item).partition("[")[0] for item in slow_list.often(rows))
    assert left == {f"a.py::test_{name}": rows for name, rows in zip(names, (1, 2, 3, 3), strict=True)}


def test_of_rows_that_differ_in_their_profile_one_is_left():
    rows = items("a.py::test_it[TOSA-1.0+INT]", "a.py::test_it[TOSA-1.0+INT+FP]", "a.py::test_it[other]")
    assert len(slow_list.often(rows)) == 2
